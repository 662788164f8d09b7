// Package upstream names types of Kubernetes whose names depend on the release.
package upstream
