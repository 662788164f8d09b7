// Package stores makes the storages of the built-in kinds.
//
// The behaviour of a kind comes from upstream: the storage providers of kube-apiserver give each
// resource its defaulting, conversion, validation, preparation, printer columns, short names,
// categories and subresources. The table here lists the providers, in the order that decides which
// group an unqualified resource name means; catalog.Legacy adds versions that upstream no longer
// serves. A new group is a new row; CONTRIBUTING.md has the other steps, and the steps for a group
// that upstream does not have.
package stores
