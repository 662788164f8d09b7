// Package legacy tests Gatehouse with the client of Kubernetes 1.8 and 1.9: its types, its serializers and its
// transport. It is a separate module, so that the client is not a dependency of Gatehouse.
package legacy
