// Gatehouse is an API server with dynamic admission, and the tools for it.
package main

import (
	"os"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
)

func main() {
	os.Exit(cli.Main(command.Signals(), os.Args[1:], command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
