// Package modules runs the tests of the modules in the tree that are not part of this one, so that
// the tests of this module are all there are: gatehousetest, which operators import, and the example
// that uses it.
package modules
