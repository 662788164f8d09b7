// Package audits audits the objects of a cluster for an agent: in a child process of the full program, or in another
// container of the same pod, which the agent asks at a unix socket.
//
// The embedded API server that evaluates the policies stays outside of the agent, with its memory and its metrics.
package audits
