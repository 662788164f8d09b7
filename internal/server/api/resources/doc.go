// Package resources serves API resources: one handler for built-in and custom
// kinds.
//
// An Endpoint is one resource or subresource in one served version: its storage,
// which knows what the kind is and does, and the request scope, which knows how
// its objects are read from and written to the wire. A Handler asks its Sources, in
// order, for the endpoint of a request, and runs the verb with the library's request
// handlers, admission included. Static is the source of the built-in kinds.
//
// # metadata.initializers
//
// The field is unknown to the typed objects that built-in kinds are made of.
// The codec of package initialization carries it around them, as package
// internal/engine/initializers describes, to JSON, YAML and protobuf; a TypeConverter does the same for
// server-side apply, and strategic merge patches that name the field are applied
// to the object's JSON form.
package resources
