// Package runtimeconfig says which versions of the API a server serves, by the entries of
// --runtime-config (S9.8).
package runtimeconfig
