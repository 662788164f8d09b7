// Package dependents makes the objects that the controllers of Kubernetes create for workloads.
package dependents
