// Package fielddocs reads the documentation of API fields from the comments of their types. The
// packages of the types embed their source, so that readers of the code, kubectl explain and
// OpenAPI documents have the same text.
package fielddocs
