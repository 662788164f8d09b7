// Package webhookservices finds the addresses of webhooks that registrations name by a service:
// the address that the administrator gave for the service, or else the endpoints that the
// cluster has for it.
package webhookservices
