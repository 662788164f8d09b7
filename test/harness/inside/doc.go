// Package inside runs servers inside the test, for tests that give the server Go values,
// such as a network of its own, or that look at its metrics and types. A test program that
// imports it links the whole server, which takes long: others use package harness.
package inside
