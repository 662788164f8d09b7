// Package initializers keeps the pending initializers of objects: the field
// metadata.initializers, and which users may change it.
//
// # Where the field lives
//
// The typed metadata of today's Kubernetes libraries has no initializers field: an object that
// passes through a Go struct loses it. Objects that are unstructured carry the field where
// users see it, in metadata.initializers. Typed objects carry it in the annotation Annotation
// instead, from the moment they are decoded until they are encoded again, in etcd included. The
// server's codecs translate between the two forms, so no client ever sees the annotation. Get
// and Set work on both forms. Expose and Hide translate JSON, ExposeProtobuf and HideProtobuf
// translate protobuf.
package initializers
