// Package catalog has the built-in kinds: their types, conversions, defaults and validation, and the versions that a
// server adds to upstream's. It needs no storage and no registries, which package stores has.
package catalog
