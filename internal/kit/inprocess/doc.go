// Package inprocess sends requests to handlers of the same process, without a connection. Connections that are upgraded
// need the network.
package inprocess
