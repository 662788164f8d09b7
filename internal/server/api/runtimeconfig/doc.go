// Package runtimeconfig chooses the versions of the API that a server serves, by the entries of
// --runtime-config (S9.8).
package runtimeconfig
