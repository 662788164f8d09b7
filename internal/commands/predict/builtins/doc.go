// Package builtins adds the built-in parts of an API server to the plans of package offline: the admission plugins of a
// cluster, and the registries that prepare and validate objects. A program that plans without them does not link them.
package builtins
