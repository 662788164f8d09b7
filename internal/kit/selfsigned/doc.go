// Package selfsigned makes serving certificates for webhooks that run on this machine.
package selfsigned
