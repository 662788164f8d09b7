// Package serving holds end-to-end tests of the server as a process: starts, ends, kills, health,
// hostile input, and quotas under many writers.
package serving
