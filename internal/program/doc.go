// Package program knows the name that this program was started under.
//
// Programs that start a control plane for tests ask kube-apiserver and etcd for --help first,
// to see which flags there are. The answers are known when the program is built. Package
// program gives them when it is initialized, before a thousand other packages are: after 10 to 20 ms,
// and not after the 60 to 190 ms that main takes to begin. It imports little, so that it comes first.
package program
