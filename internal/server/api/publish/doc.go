// Package publish publishes the kinds that are served now: in discovery, in OpenAPI documents,
// and in the mapper of the server's own client.
package publish
