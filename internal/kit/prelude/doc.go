// Package prelude sets, before most other packages are initialized, options that make their
// initialization cheaper. The program has a thousand packages, and their initialization is a tenth
// of the time in which a server starts.
//
// Go initializes a package as soon as all its imports are initialized; among several such packages,
// it takes the first by path. So this package imports little, and is initialized before the large
// packages of k8s.io. In another order, the start would only be slower.
package prelude
