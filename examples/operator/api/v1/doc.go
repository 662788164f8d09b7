// Package v1 has the API of the operator: the kind Website.
package v1
