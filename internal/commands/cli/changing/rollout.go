package changing

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/rollout"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// NewRollout returns the command gatehouse rollout.
func NewRollout(streams command.Streams) *cobra.Command {
	return command.Group(&cobra.Command{
		Use:   "rollout",
		Short: "Roll out webhooks and policies: warn first, enforce later",
	}, newRolloutStatus(streams), newRolloutSet(streams))
}

type rolloutStatusOptions struct {
	cluster *command.Cluster
	target  *rollout.Target
	output  string
}

func newRolloutStatus(streams command.Streams) *cobra.Command {
	o := &rolloutStatusOptions{}
	cmd := &cobra.Command{
		Use:   "status [KIND/NAME]",
		Short: "Show the effect of webhooks and policies that only warn or audit",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return command.Usagef("unexpected argument %q", args[1])
			}
			if len(args) == 1 {
				target, err := rollout.ParseSoft(args[0])
				if err != nil {
					return command.UsageError{Err: err}
				}
				o.target = &target
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), streams)
		},
	}
	command.AddOutput(cmd, &o.output, "text, json or yaml", "text", "json", "yaml")
	o.cluster = command.NewCluster(cmd)
	completesRegistration(cmd, o.cluster, rollout.SoftKinds)
	return cmd
}

func (o *rolloutStatusOptions) run(ctx context.Context, streams command.Streams) error {
	client, config, err := o.cluster.Objects()
	if err != nil {
		return err
	}
	if err := enforcesSoftly(ctx, client, config.Host); err != nil {
		return err
	}
	objects, err := o.objects(ctx, client)
	if err != nil {
		return err
	}
	spared, note := sparedByMetrics(ctx, o.cluster)
	list, err := client.Resource(command.AdmissionTraces).List(ctx, metav1.ListOptions{})
	if err != nil {
		return command.TraceError(err)
	}
	traces, err := command.DecodeTraces(list)
	if err != nil {
		return err
	}
	statuses := []rollout.Status{}
	for i := range objects {
		statuses = append(statuses, rollout.StatusOf(&objects[i], spared, traces))
	}
	if o.output != "text" {
		return command.PrintAs(streams.Out, o.output, map[string]any{"items": statuses})
	}
	if len(statuses) == 0 {
		terminal.Fprintf(streams.Out, "All webhooks and policies are enforced.\n")
		return nil
	}
	if note != "" {
		terminal.Fprintf(streams.Err, "%s\n", note)
	}
	return o.print(streams, statuses)
}

// sparedByMetrics reads the counts of violations from the server's metrics. Without counts, it returns the
// reason.
func sparedByMetrics(ctx context.Context, c *command.Cluster) (rollout.Counts, string) {
	config, err := c.Open()
	if err != nil {
		return nil, err.Error()
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err.Error()
	}
	data, err := client.RESTClient().Get().AbsPath("/metrics").SetHeader("Accept", "text/plain").DoRaw(ctx)
	if err != nil {
		return nil, "The counts are from the traces only: " + err.Error()
	}
	counts, err := rollout.ReadCounts(data)
	if err != nil {
		return nil, "The counts are from the traces only: reading the metrics: " + err.Error()
	}
	return counts, ""
}

// enforcesSoftly returns an error if the server is not Gatehouse: it would enforce everything.
func enforcesSoftly(ctx context.Context, client dynamic.Interface, host string) error {
	if _, err := client.Resource(rollout.States).List(ctx, metav1.ListOptions{Limit: 1}); apierrors.IsNotFound(err) {
		return fmt.Errorf("the server at %s is not Gatehouse: it enforces webhooks and policies in every mode", host)
	}
	return nil
}

// objects returns the selected objects: one, or all with the annotation.
func (o *rolloutStatusOptions) objects(ctx context.Context, client dynamic.Interface) ([]unstructured.Unstructured, error) {
	if o.target != nil {
		u, err := client.Resource(o.target.Resource()).Get(ctx, o.target.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return []unstructured.Unstructured{*u}, nil
	}
	var found []unstructured.Unstructured
	for _, plural := range rollout.SoftKinds() {
		list, err := client.Resource(rollout.Resource(plural)).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if rollout.Soft(&list.Items[i]) {
				found = append(found, list.Items[i])
			}
		}
	}
	return found, nil
}

// mostNamespaces bounds the namespaces that a line names. -o json has all.
const mostNamespaces = 3

func (o *rolloutStatusOptions) print(streams command.Streams, statuses []rollout.Status) error {
	counted := func(n *int64) any {
		if n == nil {
			return "?"
		}
		return *n
	}
	table := terminal.NewTable(terminal.Titles("OBJECT", "ENFORCEMENT", "ENFORCED IN", "AGE", "WOULD REJECT", "WOULD CHANGE")...)
	for i := range statuses {
		s := &statuses[i]
		age := "unknown"
		if s.Since != nil {
			age = duration.HumanDuration(time.Since(s.Since.Time))
		}
		enforced := cmp.Or(s.Rollout, "no namespace")
		if s.Enforcement == string(registration.ModeDeny) {
			enforced = "all"
		}
		table.Row(s.Kind+"/"+s.Name, s.Enforcement, enforced, age, counted(s.WouldReject), counted(s.WouldChange))
	}
	if err := command.WriteTable(streams.Out, table); err != nil {
		return err
	}
	for i := range statuses {
		s := &statuses[i]
		if len(s.Namespaces) == 0 {
			continue
		}
		terminal.Fprintf(streams.Out, "\n%s/%s, by the traces that the server keeps:\n", s.Kind, s.Name)
		table := terminal.NewTable(terminal.Titles("NAMESPACE", "WOULD REJECT", "WOULD CHANGE", "TRACE", "EXAMPLE")...)
		for _, alike := range rollout.Alike(s.Namespaces) {
			var names []string
			reject, change := 0, 0
			for _, n := range alike {
				names = append(names, cmp.Or(n.Namespace, "-"))
				reject, change = reject+n.WouldReject, change+n.WouldChange
			}
			table.Row(report.Some(names, mostNamespaces), reject, change, alike[0].Trace, alike[0].Example)
		}
		if err := command.WriteTable(streams.Out, table); err != nil {
			return err
		}
	}
	return nil
}

type rolloutSetOptions struct {
	cluster *command.Cluster
	target  rollout.Target
	rollout.Change
}

func newRolloutSet(streams command.Streams) *cobra.Command {
	o := &rolloutSetOptions{}
	var in string
	cmd := &cobra.Command{
		Use:   "set KIND/NAME MODE",
		Short: "Set the enforcement of a webhook or policy",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return command.Usagef("name one object and its mode, as KIND/NAME MODE")
			}
			var err error
			if o.target, err = rollout.ParseSoft(args[0]); err != nil {
				return command.UsageError{Err: err}
			}
			if o.Mode, err = rollout.ParseMode(args[1]); err != nil {
				return command.UsageError{Err: err}
			}
			if o.In != "" && in != "" {
				return command.Usagef("--in is the old name of --enforce-in: use one of them")
			}
			o.In = cmp.Or(o.In, in)
			if o.Mode == registration.ModeDeny && o.In != "" {
				return command.Usagef("--enforce-in needs the mode Warn or Audit, which applies to the other namespaces")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	command.AddSection(cmd, "What to set", func(f *pflag.FlagSet) {
		f.StringVar(&o.In, "enforce-in", "", "`namespaces` in which it is enforced: a share such as 25%, or a label selector; MODE applies to the others")
		f.StringVar(&in, "in", "", "old name of --enforce-in")
		f.StringVar(&o.Webhook, "webhook", "", "only this webhook of the configuration")
	})
	o.cluster = command.NewCluster(cmd)
	completesRegistration(cmd, o.cluster, rollout.SoftKinds)
	return cmd
}

func (o *rolloutSetOptions) run(ctx context.Context, streams command.Streams) error {
	client, config, err := o.cluster.Objects()
	if err != nil {
		return err
	}
	if err := enforcesSoftly(ctx, client, config.Host); err != nil {
		return err
	}
	objects := client.Resource(o.target.Resource())
	u, err := objects.Get(ctx, o.target.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	patch, err := o.Patch(u)
	if err != nil {
		return err
	}
	stored, err := objects.Patch(ctx, o.target.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "gatehouse"})
	if err != nil {
		return err
	}
	terminal.Fprintf(streams.Out, "%s/%s: %s\n", stored.GetKind(), stored.GetName(), rollout.Describe(stored.GetAnnotations()))
	return nil
}
