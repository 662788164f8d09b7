// Package inside runs servers in the test process, for tests that give the server Go values, such as a custom
// network, or that read its metrics and types. A test program that imports it links the whole server, which
// takes long; other tests use package harness.
package inside
