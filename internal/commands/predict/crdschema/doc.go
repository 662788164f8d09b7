// Package crdschema makes CustomResourceDefinitions from schemas: from the OpenAPI of a cluster whose CRDs may not be
// read.
//
// A schema has the types, the defaults and the CEL rules of a CRD. It does not have the conversion between versions.
package crdschema
