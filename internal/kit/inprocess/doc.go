// Package inprocess sends requests to handlers of the same process, without a connection. A response is returned
// when it is complete, so watches and upgraded connections need the network.
package inprocess
