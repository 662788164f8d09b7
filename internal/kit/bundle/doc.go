// Package bundle collects in one archive the data for diagnosing a server.
package bundle
