// Package stack spares requests the growing of their stacks. A goroutine starts
// with a small stack, which is copied each time it has grown full, and the frames
// on it are adjusted one by one. A request runs in three goroutines, each new, and
// the handlers of a server nest deep: that was a tenth of its CPU time.
package stack
