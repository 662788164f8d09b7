// Package priorities has the priority of each group version in discovery. It is apart from package aggregation because
// upstream's table links all built-in stores.
package priorities
