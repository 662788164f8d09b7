// Package v1alpha1 has AdmissionTrace of gatehouse.dev/v1alpha1: what admission did with
// a request.
package v1alpha1
