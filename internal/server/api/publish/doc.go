// Package publish publishes the served kinds: in discovery, in OpenAPI documents, and in the mapper
// of the server's own client.
package publish
