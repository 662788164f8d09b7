// Package schemas finds the schemas of kinds, for what policies say about objects. Applied has
// those by which server-side apply merges objects, and Described those that OpenAPI documents
// have.
package schemas
