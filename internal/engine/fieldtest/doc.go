// Package fieldtest keeps the descriptions that OpenAPI has of Go types equal to the
// comments of these types. It is for tests.
package fieldtest
