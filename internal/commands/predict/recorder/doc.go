// Package recorder records the requests to a cluster. It serves a webhook that allows every request, writes the
// received reviews into files, and keeps the webhook registered only while it runs.
package recorder
