// Package chart tests the Helm chart of gatehouse agent, deploy/agent/chart, with the library of Helm. It is a module
// of its own, so that nothing of Helm is among the dependencies of the program.
package chart
