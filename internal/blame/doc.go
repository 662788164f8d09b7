// Package blame finds out of traces who set which fields of an object, for the command blame and for
// the console.
package blame
