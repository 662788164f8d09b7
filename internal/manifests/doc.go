// Package manifests reads the Kubernetes objects of files as kubectl does, and knows the line
// of each field. All commands and the server read files of objects by it.
//
// # What is read
//
// Parse takes the content of a file, and Read takes files, directories and standard input: YAML
// and JSON, several documents in a file, and lists, which are taken apart. What cannot be read is a Problem with its place,
// and the rest is read all the same. What is not an object, such as the values of a Helm
// chart, a template or a patch of a kustomization, is a Note.
//
// # Concurrency
//
// A Set does not change once it is read. Place may be called concurrently.
package manifests
