// Package aggregation tests aggregated API servers: the unmodified sample server of Kubernetes, and servers
// that fail in many ways (S22).
package aggregation
