// Package modules runs the tests of the other modules in the tree, so that the tests of this module cover the
// whole tree: gatehousetest, which operators import; the example that uses it; and internal/release/chart,
// which tests the chart of the agent with the library of Helm.
package modules
