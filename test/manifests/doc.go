// Package manifests contains end-to-end tests of the files that servers and commands read: registrations,
// exclusion rules, and paths that are pipes, devices or links.
package manifests
