// Package manifests holds end-to-end tests of what servers and commands read from files:
// registrations, exclusion rules, and paths that are pipes, devices or links.
package manifests
