// Package shown shows clients which kinds there are now: in discovery, in OpenAPI documents, and
// in the mapper of the server's own client.
package shown
