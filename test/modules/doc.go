// Package modules runs the tests of the modules in the tree that are not part of this one, so that
// the tests of this module are all there are: gatehousetest, which operators import, the example
// that uses it, and internal/release/chart with the library of Helm, which tests the chart of the agent.
package modules
