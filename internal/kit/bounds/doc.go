// Package bounds limits the resources that clients without credentials can take from an HTTP server: the size
// and the time of their requests and responses, and the number of their connections.
package bounds
