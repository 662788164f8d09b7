package after

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/internal/readers/view"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
)

type traceOptions struct {
	cluster *command.Cluster
	id      string
	follow  bool
	// slowest is the number of slowest requests to print; 0 means the latest requests.
	slowest       int
	bySlowness    bool
	auditID       string
	webhook       string
	outcome       string
	response      string
	user          string
	allNamespaces bool
	output        string
	log           auditLog
	// policy prints the audit policy.
	policy bool
}

// slowestByDefault is the default number of --slowest.
const slowestByDefault = 10

// NewTrace returns the command gatehouse trace.
func NewTrace(streams command.Streams) *cobra.Command {
	o := &traceOptions{}
	cmd := &cobra.Command{
		Use:   "trace [ID]",
		Short: "Show what admission did with requests",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) > 1:
				return command.Usagef("unexpected argument %q", args[1])
			case len(args) == 1 && o.bySlowness:
				n, err := strconv.Atoi(args[0])
				if err != nil || n < 1 {
					return command.Usagef("--slowest %s: it is not a number of requests", args[0])
				}
				o.slowest = n
			case len(args) == 1:
				o.id = args[0]
			case o.bySlowness:
				o.slowest = slowestByDefault
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return o.run(cmd.Context(), streams)
		},
	}
	command.AddSection(cmd, "Which requests", func(f *pflag.FlagSet) {
		f.BoolVarP(&o.follow, "follow", "f", false, "print new requests as they arrive, until Ctrl-C")
		f.BoolVar(&o.bySlowness, "slowest", false, fmt.Sprintf("the requests that took longest, %d of them or the given number", slowestByDefault))
		f.StringVar(&o.auditID, "audit-id", "", "only the request with this ID in the header Audit-Id of its answer, in the log, in the audit log, and in calls of webhooks")
		f.StringVar(&o.webhook, "webhook", "", "only requests for which the webhook of this name was called, or that got the initializer of this name")
		f.StringVar(&o.outcome, "outcome", "", "only requests with this outcome: Allowed, FailedOpen, Denied or Failed, or of an audit log Rejected (by something else than admission) or Unknown")
		f.StringVar(&o.response, "response", "", "only requests with this response: a code such as 409, a class such as 4xx, or the reason of an error such as Invalid; an allowed request may be refused later, by validation or the storage")
		f.StringVar(&o.user, "user", "", "only requests of this user")
		f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "requests in all namespaces and in none")
	})
	command.AddSection(cmd, "The audit log of another cluster", func(f *pflag.FlagSet) {
		o.log.addFlags(f)
		f.BoolVar(&o.policy, "audit-policy", false, "print the policy for an audit log that shows most, and do nothing else")
	})
	command.AddOutput(cmd, &o.output, "text, json, yaml, html (a page), markdown, or jsonl: one trace a line, for 'gatehouse replay'",
		"text", "json", "yaml", "jsonl", "html", "markdown")
	o.cluster = command.NewCluster(cmd)
	o.log.cluster = o.cluster
	command.Completes(cmd, "outcome", outcomeNames)
	command.CompletesArguments(cmd, func() []string { return o.cluster.ObjectNames(cmd)("admissiontraces.gatehouse.dev") })
	return cmd
}

// outcomeNames returns the outcomes of traces.
func outcomeNames() []string {
	var names []string
	for _, outcome := range trace.Outcomes {
		names = append(names, string(outcome))
	}
	return names
}

// check rejects conflicting flags.
func (o *traceOptions) check() error {
	outcomes := outcomeNames()
	if i := slices.IndexFunc(outcomes, func(name string) bool { return strings.EqualFold(name, o.outcome) }); i >= 0 {
		o.outcome = outcomes[i]
	}
	if o.outcome != "" {
		if err := command.OneOf("outcome", o.outcome, outcomes...); err != nil {
			return err
		}
	}
	switch {
	case o.id != "" && (o.follow || o.auditID != "" || o.webhook != "" || o.outcome != "" || o.response != "" || o.user != ""):
		return command.Usagef("an ID names one request: leave out the flags that select requests")
	case o.follow && (o.output == "html" || o.output == "markdown"):
		return command.Usagef("--follow never ends, and --output %s is a whole page: leave out one of them", o.output)
	case o.follow && o.bySlowness:
		return command.Usagef("--follow and --slowest exclude each other")
	case o.follow && len(o.log.paths) > 0:
		return command.Usagef("--audit-log is read once: leave out --follow")
	}
	return o.log.check()
}

// selector returns the field selector of the wanted traces.
func (o *traceOptions) selector() string {
	set := fields.Set{}
	for field, value := range map[string]string{"auditID": o.auditID, "webhook": o.webhook, "outcome": o.outcome, "response": o.response, "user": o.user} {
		if value != "" {
			set[field] = value
		}
	}
	return set.AsSelector().String()
}

func (o *traceOptions) run(ctx context.Context, streams command.Streams) error {
	if o.policy {
		_, err := io.WriteString(streams.Out, auditPolicy)
		return err
	}
	all, placed, err := o.open(ctx, streams)
	if err != nil {
		return err
	}
	if o.id != "" {
		t, err := findTrace(ctx, all, placed, o.id)
		if err != nil {
			return err
		}
		if o.output == "jsonl" {
			return json.NewEncoder(terminal.Exact(streams.Out)).Encode(t.Object)
		}
		if o.output == "json" || o.output == "yaml" {
			return command.PrintAs(streams.Out, o.output, t.Object)
		}
		decoded, err := command.DecodeTrace(t)
		if err != nil {
			return err
		}
		return view.OfTrace(&decoded.Record, view.Links{}).Format(streams.Out, o.output)
	}
	from := placed
	if o.allNamespaces {
		from = all
	}
	if served, ok := from.(command.ServerTraces); ok && o.follow {
		for gv := range served.Behind {
			terminal.Fprintf(streams.Err, "--follow leaves out the requests of the server of %s.\n", gv)
		}
		return command.FollowTraces(ctx, served.Main, o.selector(), func() {}, func(u *unstructured.Unstructured) error { return o.follows(streams.Out, u) }, streams.Err)
	}
	list, err := from.List(ctx, metav1.ListOptions{FieldSelector: o.selector()})
	if err != nil {
		return command.TraceError(err)
	}
	if o.slowest > 0 {
		total := func(u unstructured.Unstructured) int64 {
			micros, _, _ := unstructured.NestedInt64(u.Object, "totalMicros")
			return micros
		}
		slices.SortStableFunc(list.Items, func(a, b unstructured.Unstructured) int { return cmp.Compare(total(b), total(a)) })
		list.Items = list.Items[:min(o.slowest, len(list.Items))]
	}
	items, err := command.DecodeTraces(list)
	if err != nil {
		return err
	}
	switch o.output {
	case "jsonl":
		lines := json.NewEncoder(terminal.Exact(streams.Out))
		for i := range list.Items {
			if err := lines.Encode(list.Items[i].Object); err != nil {
				return err
			}
		}
		return nil
	case "json", "yaml":
		return command.PrintAs(streams.Out, o.output, list.UnstructuredContent())
	case "html", "markdown":
		latest := records(items)
		if o.slowest > 0 {
			// The page starts with the latest trace.
			slices.Reverse(latest)
		}
		return view.OfTraces(latest).Format(streams.Out, o.output)
	}
	if len(items) == 0 {
		none := "No trace matches. The server keeps the traces of the latest writes that it handled."
		if len(o.log.paths) > 0 {
			if none = "No request of the audit log matches."; !o.allNamespaces {
				none += " -A looks in all namespaces."
			}
		}
		terminal.Fprintf(streams.Err, "%s\n", none)
		return nil
	}
	return command.WriteTable(streams.Out, traceTable(items, o.allNamespaces, time.Now()))
}

// traceTable has a row for each trace, with the namespace of the request if namespaces is set.
func traceTable(items []*v1alpha1.AdmissionTrace, namespaces bool, now time.Time) *terminal.Table {
	columns := terminal.Titles("ID", "OPERATION", "OBJECT", "OUTCOME", "REVIEWS", "TOTAL", "OWN", "AGE")
	for i := range columns {
		// Timings move below the row first on a narrow terminal: users look for the object.
		columns[i].Below = slices.Contains([]string{"REVIEWS", "TOTAL", "OWN"}, columns[i].Title)
		columns[i].Whole = columns[i].Title == "ID"
	}
	if namespaces {
		columns = append(terminal.Titles("NAMESPACE"), columns...)
	}
	table := terminal.NewTable(columns...)
	for _, t := range items {
		own := view.Brief(t.OwnMicros)
		if t.Audit != nil {
			own = ""
		}
		cells := []any{t.ID, t.Request.Operation, t.Request.Object(), view.Outcome(&t.Record), t.Reviews(),
			view.Brief(t.TotalMicros), own, duration.HumanDuration(now.Sub(t.Start.Time))}
		if namespaces {
			cells = append([]any{t.Namespace}, cells...)
		}
		table.Row(cells...)
	}
	return table
}

// reader reads traces of a server or of an audit log.
type reader interface {
	List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error)
	Get(ctx context.Context, name string, o metav1.GetOptions, subresources ...string) (*unstructured.Unstructured, error)
}

// open returns readers of the traces of all namespaces and of the selected namespace.
func (o *traceOptions) open(ctx context.Context, streams command.Streams) (all, placed reader, err error) {
	if len(o.log.paths) == 0 {
		client, _, err := o.cluster.Objects()
		if err != nil {
			return nil, nil, err
		}
		namespace, err := o.cluster.Namespace()
		if err != nil {
			return nil, nil, err
		}
		every, some := servedTraces(ctx, client, namespace, streams.Err)
		return every, some, nil
	}
	namespace, err := o.cluster.Namespace()
	if err != nil {
		return nil, nil, err
	}
	log, err := o.log.read(ctx, streams, func(t *trace.Trace) bool {
		about := t.Subject()
		return (o.auditID == "" || o.auditID == t.AuditID) && (o.user == "" || o.user == about.User) && (o.outcome == "" || o.outcome == string(t.Outcome())) &&
			(o.id == "" || o.id == t.ID || o.id == t.AuditID) && (o.id != "" || o.allNamespaces || about.Namespace == namespace || about.Namespace == "")
	})
	if err != nil {
		return nil, nil, err
	}
	return log, log.in(namespace), nil
}

// servedTraces returns readers of the traces that servers keep: of all namespaces, and of one namespace.
func servedTraces(ctx context.Context, client dynamic.Interface, namespace string, errs io.Writer) (all, placed command.ServerTraces) {
	own := client.Resource(command.AdmissionTraces)
	all = command.ServerTraces{Main: own, Behind: map[schema.GroupVersion]dynamic.ResourceInterface{}, Errs: errs}
	placed = command.ServerTraces{Main: own.Namespace(namespace), Behind: map[schema.GroupVersion]dynamic.ResourceInterface{}, Errs: errs}
	for _, gv := range command.Reporting(ctx, client) {
		behind := client.Resource(gv.WithResource(command.AdmissionTraces.Resource))
		all.Behind[gv], placed.Behind[gv] = behind, behind.Namespace(namespace)
	}
	return all, placed
}

// findTrace returns a trace by ID. Users without the right to read all traces search the selected namespace.
func findTrace(ctx context.Context, all, placed reader, id string) (*unstructured.Unstructured, error) {
	t, err := all.Get(ctx, id, metav1.GetOptions{})
	if apierrors.IsForbidden(err) {
		t, err = placed.Get(ctx, id, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: there is no such trace that you are allowed to read; each server keeps the traces of the latest writes that it handled", err)
	}
	return t, command.TraceError(err)
}

// follows prints a trace that has arrived.
func (o *traceOptions) follows(out io.Writer, u *unstructured.Unstructured) error {
	switch o.output {
	case "json", "jsonl":
		// One object on each line.
		return json.NewEncoder(terminal.Exact(out)).Encode(u.Object)
	case "yaml":
		fmt.Fprintln(out, "---")
		return command.PrintAs(out, o.output, u.Object)
	}
	t, err := command.DecodeTrace(u)
	if err != nil {
		return err
	}
	place := ""
	if t.Namespace != "" {
		place = " in " + t.Namespace
	}
	_, err = terminal.Fprintf(out, "%s %s %s %s%s by %s: %s, %s, %s\n", t.Start.Local().Format("15:04:05.000"), t.ID, t.Request.Operation,
		t.Request.Object(), place, t.Request.User, view.OutcomeText(&t.Record), report.Count(t.Reviews(), "review"), view.Brief(t.TotalMicros))
	return err
}
