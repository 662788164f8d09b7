// Package initializers maintains the pending initializers of objects: the field
// metadata.initializers, and the permission to change it.
//
// # Storage of the field
//
// The typed metadata of current Kubernetes libraries has no initializers field: an object that is
// converted to a Go struct loses it. Unstructured objects have the field where users see it, in
// metadata.initializers. Typed objects carry it in the annotation Annotation instead, from decoding
// to encoding, and also in etcd. The server's codecs translate between the two forms, so no client
// ever sees the annotation. Get and Set work on both forms. Expose and Hide translate JSON,
// ExposeProtobuf and HideProtobuf translate protobuf.
package initializers
