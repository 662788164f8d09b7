// Package nearest suggests the name that a user probably meant by a misspelled one.
package nearest
