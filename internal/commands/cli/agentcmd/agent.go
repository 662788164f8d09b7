package agentcmd

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gatehouse-dev/gatehouse/internal/commands/agent"
	"github.com/gatehouse-dev/gatehouse/internal/commands/agent/audits"
	"github.com/gatehouse-dev/gatehouse/internal/commands/agent/watch"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/auditreport"
	"github.com/gatehouse-dev/gatehouse/internal/kit/prelude"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
)

type agentOptions struct {
	agent.Options
	log     command.Logging
	service string
	// webhook is the address for the kubeconfig to print. apiService and rbac print manifests.
	webhook          string
	apiService, rbac bool
	// lint and audited enable the checks of the cluster: lint runs the lint rules, and audited lists the
	// audited resources.
	lint    bool
	audited []string
	release command.Release
	// auditSocket is the socket of a process that audits for this one, and serveAudits the socket at which this process
	// only audits. alone reports whether the program has no audit.
	auditSocket, serveAudits string
	alone                    bool
}

//go:embed help.txt
var help string

// NewProgram returns the command gatehouse-agent.
func NewProgram(streams command.Streams) *cobra.Command {
	o := &agentOptions{log: command.NewLogging(), alone: true}
	cmd := o.command(streams)
	for _, text := range []*string{&cmd.Use, &cmd.Long, &cmd.Example} {
		*text = programNames.Replace(*text)
	}
	return cmd
}

// programNames replaces the name and the flag of the subcommand by the name and the flag of the program.
var programNames = strings.NewReplacer("agent --credentials DIR", "gatehouse-agent --credentials DIR", "gatehouse agent", "gatehouse-agent", "With --audit-objects", "With --audit-socket")

// NewAgent returns the command gatehouse agent.
func NewAgent(streams command.Streams) *cobra.Command {
	o := &agentOptions{log: command.NewLogging()}
	return o.command(streams)
}

// command returns the command that fills in the options.
func (o *agentOptions) command(streams command.Streams) *cobra.Command {
	var version bool
	cmd := &cobra.Command{
		Use:   "agent --credentials DIR",
		Short: "Serve traces of a cluster with a kube-apiserver",
		Args:  command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				return command.PrintVersion(streams.Out, command.CurrentVersion(), "text")
			}
			service, err := agent.ParseService(o.service)
			if err != nil {
				return command.Usagef("--service %v", err)
			}
			o.Service = service
			switch {
			case slices.Contains(o.audited, "secrets"):
				return command.Usagef("--audit-objects secrets: secrets are never read")
			case o.serveAudits != "":
				return o.audit(cmd.Context(), streams)
			case o.auditSocket != "" && len(o.audited) > 0 && !o.rbac:
				return command.Usagef("--audit-socket and --audit-objects: the process at the socket has the resources")
			case o.alone && len(o.audited) > 0 && !o.rbac:
				return command.Usagef("--audit-objects: this program has no API server to evaluate policies: name the socket of a 'gatehouse agent --serve-audits' with --audit-socket")
			case o.rbac:
				more, err := watch.RBAC(service.Namespace, service.Name, o.lint, o.audited)
				if err == nil {
					_, err = io.WriteString(streams.Out, agent.RBAC(service)+more)
				}
				return err
			case o.Credentials == "":
				return command.Usagef("name the directory of the credentials with --credentials: it is made if it is missing")
			case o.Port < 0 || o.Port > 65535:
				return command.Usagef("--secure-port %d is not a port", o.Port)
			case o.TraceBytes < 1<<20:
				return command.Usagef("--trace-bytes must be 1048576 (1 MiB) or more")
			}
			made, err := agent.EnsureCredentials(o.Credentials, service)
			if err != nil {
				return fmt.Errorf("--credentials: %w", err)
			}
			if made {
				terminal.Fprintf(streams.Err, "Made a certificate for the service %s and a token for the API server in %s.\n", o.service, o.Credentials)
			}
			if o.webhook != "" || o.apiService {
				return o.print(streams.Out, service)
			}
			return o.run(cmd.Context(), streams)
		},
	}
	command.Describe(cmd, help)
	command.AddSection(cmd, "Cluster", func(f *pflag.FlagSet) {
		f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster, which authorizes the readers of traces (default: the service account of the pod)")
	})
	command.AddSection(cmd, "Audit events", func(f *pflag.FlagSet) {
		f.StringArrayVar(&o.Follow, "follow", nil, "`path` of an audit log that is followed, with rotation; may be repeated")
		f.IntVar(&o.TraceBytes, "trace-bytes", 32<<20, "memory for traces, in bytes; the oldest ones go first")
	})
	command.AddSection(cmd, "Findings", func(f *pflag.FlagSet) {
		f.BoolVar(&o.lint, "lint", true, "look for dangerous webhooks and policies in the cluster")
		objects := "find objects of this `resource` that break the policies of the cluster, such as pods or deployments.apps; may be repeated"
		if o.alone {
			objects = "with --rbac, print the rights to audit objects of this `resource`, such as pods or deployments.apps; may be repeated"
		}
		f.StringSliceVar(&o.audited, "audit-objects", nil, objects)
		f.StringVar(&o.auditSocket, "audit-socket", "", "have objects audited by the process that serves this unix `socket`, 'gatehouse agent --serve-audits'")
		if !o.alone {
			f.StringVar(&o.serveAudits, "serve-audits", "", "audit the objects of --audit-objects for another agent that asks at this unix `socket`, and do nothing else")
		}
	})
	command.AddSection(cmd, "Serving", func(f *pflag.FlagSet) {
		f.StringVar(&o.BindAddress, "bind-address", "0.0.0.0", "IP address to listen on")
		f.IntVar(&o.Port, "secure-port", 8443, "port to listen on; 0 means any free port")
		f.StringVar(&o.Credentials, "credentials", "", "`directory` with the certificate and the token of the API server; it is made if it is missing")
		f.StringVar(&o.service, "service", "gatehouse-agent/gatehouse-agent", "service in front of the agent, as NAMESPACE/NAME, whose name is in the certificate")
		f.StringArrayVar(&o.Peers, "peer", nil, "`address` of other replicas, HOST:PORT, to which events are passed on so that each has all traces; may be repeated")
		f.DurationVar(&o.ShutdownDelay, "shutdown-delay", 0, "how long it serves after the signal to end, until others know that it ends")
	})
	command.AddSection(cmd, "Print, and do nothing else", func(f *pflag.FlagSet) {
		f.StringVar(&o.webhook, "webhook-kubeconfig", "", "print the file for --audit-webhook-config-file of kube-apiserver, which reaches the agent at this `address`, HOST:PORT")
		f.BoolVar(&o.apiService, "apiservice", false, "print the APIService by which the cluster passes requests for traces on to the agent")
		f.BoolVar(&o.rbac, "rbac", false, "print the rights that the agent needs, as manifests")
	})
	command.AddSection(cmd, "Log", func(f *pflag.FlagSet) {
		o.log.AddFlags(f, "log verbosity: 0 logs warnings and errors; higher numbers log more")
	})
	if o.alone {
		cmd.Flags().BoolVar(&version, "version", false, "say what this program was built from")
	}
	return cmd
}

func (o *agentOptions) print(out io.Writer, service agent.Service) error {
	if o.webhook != "" && o.apiService {
		return command.Usagef("--webhook-kubeconfig and --apiservice print two files: leave out one")
	}
	if o.apiService {
		text, err := agent.APIService(o.Credentials, service)
		if err == nil {
			_, err = io.WriteString(out, text)
		}
		return err
	}
	data, err := agent.WebhookKubeconfig(o.Credentials, o.webhook, service)
	if err != nil {
		return command.Usagef("--webhook-kubeconfig %v", err)
	}
	_, err = terminal.Exact(out).Write(data)
	return err
}

func (o *agentOptions) run(ctx context.Context, streams command.Streams) error {
	if err := o.log.Start(ctx, o.log.Writer(streams.Err)); err != nil {
		return err
	}
	if _, err := rest.InClusterConfig(); o.Kubeconfig == "" && errors.Is(err, rest.ErrNotInCluster) {
		return errors.New("the agent does not run in a pod: name its cluster with --kubeconfig")
	}
	if o.lint || len(o.audited) > 0 || o.auditSocket != "" {
		if err := o.watch(); err != nil {
			return err
		}
	}
	// Most of the heap is long-lived traces, so it is collected at a smaller growth.
	prelude.SetCollectAt(60)
	a, err := agent.New(o.Options)
	if err != nil {
		return err
	}
	return a.Run(ctx, func() {
		terminal.Fprintf(streams.Out, "gatehouse agent is ready at https://%s\n", net.JoinHostPort(o.BindAddress, strconv.Itoa(a.Port())))
	})
}

// watch configures the checks of the cluster, and makes this process emulate the cluster's release.
func (o *agentOptions) watch() error {
	config, err := rest.InClusterConfig()
	if o.Kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	}
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if err := o.release.ChooseFor(config); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	options := watch.Options{Config: config, Namespace: o.Service.Namespace, Identity: host + "_" + rand.Text()[:8], Lint: o.lint}
	switch {
	case o.auditSocket != "":
		options.Audit = audits.At(o.auditSocket)
	case len(o.audited) > 0:
		if options.Audit, err = o.audits(); err != nil {
			return err
		}
	}
	w, err := watch.New(options)
	if err == nil {
		if o.Watch = w.Run; o.lint {
			o.Derive = w.Derive
		}
	}
	return err
}

// audits returns the function that audits in a process of this program.
func (o *agentOptions) audits() (func(context.Context) (*auditreport.Report, error), error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return audits.By(program, o.Kubeconfig, o.audited), nil
}

// audit audits for another agent, until ctx ends.
func (o *agentOptions) audit(ctx context.Context, streams command.Streams) error {
	if len(o.audited) == 0 {
		return command.Usagef("--serve-audits: name the resources to audit with --audit-objects")
	}
	if err := o.log.Start(ctx, o.log.Writer(streams.Err)); err != nil {
		return err
	}
	run, err := o.audits()
	if err != nil {
		return err
	}
	listener, err := audits.Listen(o.serveAudits)
	if err != nil {
		return fmt.Errorf("--serve-audits: %w", err)
	}
	terminal.Fprintf(streams.Out, "gatehouse agent is ready at unix:%s\n", o.serveAudits)
	return audits.Serve(ctx, listener, run)
}
