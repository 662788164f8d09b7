// Package places says where the objects of resources are in etcd, for the parts that look there
// without the API.
package places
