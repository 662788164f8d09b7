package cli

import "github.com/spf13/cobra"

// helpTopics are commands without an action: cobra lists them separately and prints their text.
func helpTopics() []*cobra.Command {
	return []*cobra.Command{
		{
			Use:   "exit-codes",
			Short: "Exit codes and their meaning",
			Long: `gatehouse exits with

  0  when it succeeded; serve: after SIGTERM or SIGINT, once the running
     requests have finished
  1  when it failed; standard error says why, in one sentence. Also when
     check: the cluster would reject an object, or a file cannot be read
     lint: there are findings of level error, or a file cannot be read
     test: a test fails or cannot be decided, or --coverage-min is not reached
     audit: a policy would reject an object
     replay: a request differs as --fail-on selects
     cluster status: a member does not answer
  2  when the command line is wrong: an unknown command or flag, or a flag whose
     value cannot be used. Also when
     test, replay, audit: no request or object was decided
     test: a file with tests is wrong
  3  for explain --exit-code: when a request would be rejected
  4  for explain --exit-code: when a request would be rejected unless something
     that cannot be seen changes the object

gatehouse kubectl exits with the code of kubectl.`,
		},
		{
			Use:   "environment",
			Short: "Which environment variables are read",
			Long: `COLUMNS
    How many columns the output of commands may have that goes to no terminal.
    Tables then fit it, as they fit a terminal.

GATEHOUSE_BINARY
    The program that package gatehousetest starts, in place of its own build.

GATEHOUSE_DATA_DIR
    The data directory: where serve writes when --data-dir is not given, and
    where kubectl finds admin.kubeconfig. Default ./gatehouse.data.

GATEHOUSE_ONLY
    With any value, gatehouse kubectl refuses to write to a cluster that only
    the user's own ~/.kube/config names.

KUBECONFIG
    The kubeconfig files that gatehouse kubectl uses instead of the one in the
    data directory, as with any kubectl. serve does not read it.

GATEHOUSE_END_WITH_LOCK
    A file that the users of a server for tests lock (flock, shared). The server
    ends when no process has locked it for 5 seconds, rather than with the one
    that started it, and removes the file.

GATEHOUSE_END_WITH_PARENT
    Servers for tests, which are serve --test and servers from 'gatehouse
    envtest', end with the process that started them. With the value false they
    run until they are stopped.

GATEHOUSE_PROGRAM
    The name to go by, instead of the name of the file: kube-apiserver, etcd,
    kubectl, or gatehouse.

TMPDIR
    Where temporary files go, such as the data that 'gatehouse backup verify'
    restores. Default /tmp.

GOGC
    How much the heap of serve may grow before garbage is collected, in percent.
    Default 400.

GOMEMLIMIT
    How much memory the Go runtime of serve takes at most, such as 2GiB. Default
    nine tenths of the limit of the container.

NO_COLOR
    If it is set, output on a terminal has no colours.

HTTPS_PROXY, NO_PROXY
    How serve reaches webhooks, as with any Kubernetes API server.`,
		},
	}
}
