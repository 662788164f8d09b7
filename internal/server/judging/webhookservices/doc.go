// Package webhookservices finds the addresses of webhooks that registrations name by a service: the
// address that the administrator configured for the service, or else the endpoints of the service
// in the cluster.
package webhookservices
