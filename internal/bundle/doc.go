// Package bundle gathers in one file what is needed to find a fault of a server.
package bundle
