// Package services contains end-to-end tests of webhooks, conversion webhooks and the pod and service
// proxies, which the server reaches through services. No program on this machine has the addresses of the
// pods; the servers therefore run in the test process with a custom network.
package services
