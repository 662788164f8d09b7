// Package recorder records the requests to a cluster: it serves a webhook that lets every request pass,
// writes what the webhook is sent into files, and keeps the registration of the webhook in force only
// while it lives.
package recorder
