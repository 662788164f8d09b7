// Package aggregation tests other API servers behind gatehouse: the sample server of
// Kubernetes as it is, and servers that fail in every way (S22).
package aggregation
