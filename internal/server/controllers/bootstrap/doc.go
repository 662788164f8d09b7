// Package bootstrap makes the objects that every cluster has: namespaces with their service
// accounts, the range of cluster IPs, priority classes and roles.
package bootstrap
