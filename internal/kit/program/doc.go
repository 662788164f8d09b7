// Package program has the name under which this program was started.
//
// Programs that start a control plane for tests first run kube-apiserver and etcd with --help, to
// find the supported flags. The answers are known at build time. Package program prints them during
// its initialization, before a thousand other packages are initialized: after 10 to 20 ms, instead of
// the 60 to 190 ms until main begins. It imports little, so that it is initialized early.
package program
