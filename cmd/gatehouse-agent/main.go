// Gatehouse-agent is 'gatehouse agent' without an API server and etcd: it serves the traces of a cluster with a
// kube-apiserver, and finds dangerous webhooks and policies.
package main

import (
	"os"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/agentcmd"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
)

func main() {
	os.Exit(command.Execute(command.Signals(), agentcmd.NewProgram, os.Args[1:], command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
