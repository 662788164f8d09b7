// Package serving contains end-to-end tests of the server process: starts, stops, kills, health checks,
// hostile input, and quotas with many writers.
package serving
