// Package resources serves API resources: one handler for built-in and custom kinds.
//
// An Endpoint is one resource or subresource in one served version: its storage, which implements the
// kind, and the request scope, which decodes and encodes its objects. A Handler asks its Sources, in
// order, for the endpoint of a request, and runs the verb with the request handlers of
// k8s.io/apiserver, admission included. Static is the source of the built-in kinds.
//
// # metadata.initializers
//
// The Go types of built-in kinds do not have the field. The codec of package initialization moves it
// between them and JSON, YAML and protobuf, as package internal/engine/initializers describes; a
// TypeConverter does the same for server-side apply, and strategic merge patches that name the field
// are applied to the object's JSON form.
package resources
