// Package manifests reads the Kubernetes objects of files as kubectl does, and knows the line of each field. All
// commands and the server read files of objects with it.
//
// # Input
//
// Parse takes the content of a file, and Read takes files, directories and standard input: YAML and JSON, several
// documents in a file, and lists, which are split. An unreadable part is a Problem with its place, and the rest is
// read. A document that is not an object, such as the values of a Helm chart, a template or a patch of a kustomization,
// is a Note.
//
// # Concurrency
//
// A Set does not change after it was read. Place may be called concurrently.
package manifests
