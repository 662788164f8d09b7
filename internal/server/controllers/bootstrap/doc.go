// Package bootstrap makes the default objects of a cluster: namespaces with their service accounts,
// the range of cluster IPs, priority classes and roles.
package bootstrap
