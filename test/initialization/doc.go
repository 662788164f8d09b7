// Package initialization contains end-to-end tests of initializers: a server in a separate process, real
// clients, initializers in this process and in others, and crashes. Case names begin with the rule
// (docs/dev/rules) that they verify.
package initialization
