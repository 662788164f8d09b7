// Package v1alpha1 has the kinds of gatehouse.dev/v1alpha1: the states that
// servers report.
package v1alpha1
