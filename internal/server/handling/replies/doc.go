// Package replies reads responses to requests of this server's own clients.
package replies
