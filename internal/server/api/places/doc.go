// Package places finds the objects of resources in etcd, for parts that read etcd without the API.
package places
