// Etcdmain is etcd as it is released, with its command line: what envtest starts.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
