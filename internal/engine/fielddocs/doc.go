// Package fielddocs reads what the fields of API types mean from the comments of these types. The
// packages of the types embed their source, so that readers of the code, kubectl explain and
// OpenAPI documents have the same text.
package fielddocs
