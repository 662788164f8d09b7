// Package chart tests the Helm chart of gatehouse agent, deploy/agent/chart, with Helm's own packages. It is a
// separate module, so that the program does not depend on Helm.
package chart
