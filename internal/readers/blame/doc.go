// Package blame derives from traces the authors of the fields of an object, for the command blame
// and for the console.
package blame
