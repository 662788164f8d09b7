// Package v1alpha1 has the kinds of gatehouse.dev/v1alpha1: what servers tell of
// themselves.
package v1alpha1
