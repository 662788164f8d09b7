// Package webhooks contains end-to-end tests of registered webhooks: the requests that they match, the
// reviews that they receive, the effects of their answers, and their failures.
package webhooks
