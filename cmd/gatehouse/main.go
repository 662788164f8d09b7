// Gatehouse is an API server with dynamic admission, and the tools for it.
package main

import (
	"os"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli"
)

func main() {
	os.Exit(cli.Main(cli.Signals(), os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
