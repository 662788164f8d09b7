// Package kustomize builds kustomizations for gatehouse dev. It is apart from package dev because kustomize links Go
// plugins, which makes programs of tests twice as large.
package kustomize
