package serving

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/plugins"
	"github.com/gatehouse-dev/gatehouse/plugins/webhook"
)

type webhookOptions struct {
	cluster *command.Cluster
	webhook.Options
	log                       command.Logging
	configFile, failurePolicy string
	print                     bool
}

// NewWebhook returns the command gatehouse webhook.
func NewWebhook(streams command.Streams) *cobra.Command {
	o := &webhookOptions{log: command.NewLogging()}
	cmd := &cobra.Command{
		Use:   "webhook --plugins=NAME,...",
		Short: "Serve admission plugins as webhooks, for any cluster",
		Args:  command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(o.Plugins) == 0 {
				return command.Usagef("name the plugins to serve with --plugins")
			}
			if o.failurePolicy != "Fail" && o.failurePolicy != "Ignore" {
				return command.Usagef("--failure-policy %q is neither Fail nor Ignore", o.failurePolicy)
			}
			if o.print && o.CertDir == "" {
				return command.Usagef("--print needs --cert-dir: the registrations have the certificate that the server will serve with")
			}
			o.IgnoreFailures = o.failurePolicy == "Ignore"
			return o.run(cmd.Context(), streams)
		},
	}
	command.AddSection(cmd, "Plugins", func(f *pflag.FlagSet) {
		f.StringSliceVar(&o.Plugins, "plugins", nil, "plugins to serve")
		f.StringVar(&o.configFile, "admission-control-config-file", "", "AdmissionConfiguration file with the configurations of the plugins")
		plugins.AddFlags(f)
	})
	command.AddSection(cmd, "Serving", func(f *pflag.FlagSet) {
		f.StringVar(&o.BindAddress, "bind-address", "127.0.0.1", "IP address to listen on")
		f.IntVar(&o.Port, "secure-port", 0, "port to listen on; 0 means any free port")
		f.StringVar(&o.Service, "service", "", "service in front of this server, as NAMESPACE/NAME; it must have port 443")
		f.StringVar(&o.URL, "url", "", "URL at which the cluster reaches this server (default from --bind-address and --secure-port)")
		f.StringVar(&o.CertDir, "cert-dir", "", "directory that keeps the certificate, tls.crt and tls.key (default a new certificate at each start)")
	})
	command.AddSection(cmd, "Registrations", func(f *pflag.FlagSet) {
		f.BoolVar(&o.print, "print", false, "print the registrations and exit, without registering anything")
		f.StringSliceVar(&o.ExcludeNamespaces, "exclude-namespaces", []string{"kube-system", "kube-node-lease"}, "namespaces whose requests skip these webhooks; the namespace of --service is one of them")
		f.StringVar(&o.failurePolicy, "failure-policy", "Fail", "failure policy of the webhooks, for requests without an answer of this server: Fail or Ignore")
		f.DurationVar(&o.Timeout, "timeout", 10*time.Second, "how long the cluster waits for an answer, between 1s and 30s")
	})
	command.AddSection(cmd, "Log", func(f *pflag.FlagSet) {
		o.log.AddFlags(f, "log verbosity: 0 logs warnings and errors; higher numbers log more")
	})
	o.cluster = command.NewCluster(cmd)
	command.Completes(cmd, "failure-policy", command.Values("Fail", "Ignore"))
	command.Completes(cmd, "plugins", func() []string {
		var names []string
		for _, p := range plugins.All() {
			names = append(names, p.Name)
		}
		return names
	})
	return cmd
}

func (o *webhookOptions) run(ctx context.Context, streams command.Streams) error {
	if err := o.log.Start(ctx, o.log.Writer(streams.Err)); err != nil {
		return err
	}
	var err error
	if o.Cluster, err = o.cluster.Open(); err != nil {
		return err
	}
	if o.Configuration, err = admission.LoadConfiguration(o.configFile); err != nil {
		return fmt.Errorf("--admission-control-config-file: %w", err)
	}
	s, err := webhook.New(o.Options)
	if err != nil {
		return err
	}
	if o.print {
		defer s.Close()
		return printRegistrations(streams, s)
	}
	return s.Run(ctx, func(url string) {
		if url == "" {
			url = "service " + o.Service
		}
		terminal.Fprintf(streams.Out, "gatehouse serves %d plugins at %s\n", len(o.Plugins), url)
	})
}

func printRegistrations(streams command.Streams, s *webhook.Server) error {
	m, v := s.Registrations()
	var list []any
	if m != nil {
		list = append(list, m)
	}
	if v != nil {
		list = append(list, v)
	}
	for i, object := range list {
		data, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		if i > 0 {
			fmt.Fprintln(streams.Out, "---")
		}
		if _, err := terminal.Exact(streams.Out).Write(data); err != nil {
			return err
		}
	}
	return nil
}
