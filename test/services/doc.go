// Package services holds end-to-end tests of what the server reaches through services:
// webhooks, conversion webhooks, and the proxies of pods and services. The addresses of pods
// are those of no program of this machine. Servers with a network of their own run inside
// the test therefore.
package services
