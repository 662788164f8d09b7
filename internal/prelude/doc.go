// Package prelude settles, before most other packages are initialized, what makes their
// initialization cheaper. The program has a thousand packages, and what they do before main
// begins is a tenth of the time in which a server starts.
//
// Go initializes a package as soon as all that it imports are initialized, and of several
// the one whose path sorts first. So this package imports little, and comes before what is
// large in k8s.io. If the order were another one, a start would take longer, and nothing else.
package prelude
