// Package schemas finds the schemas of kinds, for the expressions of policies. Applied has the
// schemas of server-side apply, and Described the schemas of the OpenAPI documents.
package schemas
