// Package webhooks holds end-to-end tests of registered webhooks: which requests they are
// called for, what they are sent, what their answers do, and how they fail.
package webhooks
