// Differential sends the same requests to kube-apiserver and to gatehouse and
// prints where the answers differ: HTTP codes, warnings, bodies.
//
// What it sends comes from three places. cases/kinds has an object of every
// built-in kind, with changes that make it invalid and updates to it; steps.go
// turns each into some fifty requests: create, read, list, update, the four
// patches, status, dry run, field validation, finalizers, deletion.
// cases/scripts.yaml has requests that fit no such pattern. And cases/policies has
// admission policies with the requests that they judge.
//
// Differences with a reason are listed in known.yaml, which docs/compatibility.md
// is written from; with any other the program exits with 1.
package main
