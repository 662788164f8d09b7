// Package keys makes, stores, shares and replaces the keys and certificates of a server: its CAs, its serving and client
// certificates, and the keys of the members of a cluster.
package keys
