package after

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/blame"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
)

type blameOptions struct {
	initializersOptions
	log auditLog
}

// NewBlame returns the command gatehouse blame.
func NewBlame(streams command.Streams) *cobra.Command {
	o := &blameOptions{}
	cmd := &cobra.Command{
		Use:   "blame KIND/NAME",
		Short: "Show which webhook, policy or plugin set a field",
		Args:  o.oneObject(1),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.log.check(); err != nil {
				return err
			}
			return o.run(cmd.Context(), streams)
		},
	}
	command.AddSection(cmd, "The audit log of another cluster", o.log.addFlags)
	command.AddOutput(cmd, &o.output, "text, json or yaml", "text", "json", "yaml")
	o.cluster = command.NewCluster(cmd)
	o.log.cluster = o.cluster
	command.CompletesObject(cmd, o.cluster.KindNames, o.cluster.ObjectNames(cmd))
	return cmd
}

// blamed is the history of an object's fields as the command prints it.
type blamed struct {
	blame.Blame
	// log reports whether the history is from an audit log.
	log bool
}

// records returns the records of traces.
func records(traces []*v1alpha1.AdmissionTrace) []*trace.Record {
	list := make([]*trace.Record, len(traces))
	for i, t := range traces {
		list[i] = &t.Record
	}
	return list
}

func (o *blameOptions) run(ctx context.Context, streams command.Streams) error {
	kind, name, ok := strings.Cut(o.object, "/")
	if !ok || kind == "" || name == "" {
		return command.Usagef("%q is not of the form KIND/NAME, such as deployment/web", o.object)
	}
	var s *session
	var r command.Resource
	var err error
	b := &blamed{Blame: blame.Blame{Changes: []blame.Change{}}, log: len(o.log.paths) > 0}
	if b.log && o.log.fromCluster == "" {
		r, err = o.builtin(kind)
	} else if s, err = o.open(); err == nil {
		var kinds []command.Resource
		if kinds, err = s.resources([]string{kind}, ""); err == nil {
			r = kinds[0]
		}
	}
	if err != nil {
		return err
	}
	b.Object = r.GroupResource().String() + "/" + name
	if r.Namespaced {
		if b.Namespace, err = o.cluster.Namespace(); err != nil {
			return err
		}
	}
	client, err := o.traces(ctx, streams, s, r, b.Namespace)
	if err != nil {
		return err
	}
	list, err := client.List(ctx, metav1.ListOptions{FieldSelector: fields.SelectorFromSet(fields.Set{
		"resource": r.Resource + "." + r.Group, "name": name, "dryRun": "false",
	}).String()})
	if err != nil {
		return command.TraceError(err)
	}
	traces, err := command.DecodeTraces(list)
	if err != nil {
		return err
	}
	var object *unstructured.Unstructured
	if s == nil {
		b.Unknown = append(b.Unknown, "whether the object still has the values: add --from-cluster")
	} else if object, err = r.Of(s.all, b.Namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
		object = nil
		switch {
		case apierrors.IsNotFound(err) && len(traces) > 0:
			b.Unknown = append(b.Unknown, "the object does not exist now: earlier objects with this name were changed")
		case apierrors.IsForbidden(err):
			b.Unknown = append(b.Unknown, "whether the object still has the values: you are not allowed to get it")
		default:
			return err
		}
	}
	b.Judge(records(traces), object)
	if b.log {
		b.Logged()
	}
	b.oldest(ctx, client)
	if o.output != "text" {
		return command.PrintAs(streams.Out, o.output, &b.Blame)
	}
	return b.print(streams.Out, streams.Err)
}

// builtin returns a built-in kind by its name. With an audit log, a custom resource is named by plural and
// group.
func (o *blameOptions) builtin(kind string) (command.Resource, error) {
	if k, err := offline.Builtin().Named(kind); err == nil {
		return command.Resource{GroupVersionResource: k.Resource, Namespaced: k.Namespaced}, nil
	}
	plural, group, ok := strings.Cut(kind, ".")
	if !ok {
		return command.Resource{}, fmt.Errorf("the kind %q is not built in: name it as PLURAL.GROUP, such as widgets.example.com, or name the cluster with --from-cluster", kind)
	}
	return command.Resource{GroupVersionResource: schema.GroupVersionResource{Group: group, Resource: plural}, Namespaced: o.cluster.Flags.Namespace != ""}, nil
}

// traces returns the traces of the server or of the audit log that may contain the object.
func (o *blameOptions) traces(ctx context.Context, streams command.Streams, s *session, r command.Resource, namespace string) (reader, error) {
	if len(o.log.paths) == 0 {
		return command.Resource{GroupVersionResource: command.AdmissionTraces, Namespaced: r.Namespaced}.Of(s.all, namespace), nil
	}
	log, err := o.log.read(ctx, streams, func(t *trace.Trace) bool {
		about := t.Subject()
		return about.Resource.GroupResource() == r.GroupResource()
	})
	if err != nil {
		return nil, err
	}
	return log.in(namespace), nil
}

// oldest sets the time of the oldest trace.
func (b *blamed) oldest(ctx context.Context, client reader) {
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		b.Unknown = append(b.Unknown, "how far the traces go back: "+err.Error())
		return
	}
	traces, err := command.DecodeTraces(list)
	if err != nil || len(traces) == 0 {
		return
	}
	if slices.ContainsFunc(traces, func(t *v1alpha1.AdmissionTrace) bool { return t.Audit != nil }) {
		// The traces are from an agent.
		b.Logged()
	}
	// Traces of rejected and failed-open writes are kept longer, so they do not show since when all traces are
	// kept.
	i := slices.IndexFunc(traces, func(t *v1alpha1.AdmissionTrace) bool { return b.log || t.Outcome == trace.OutcomeAllowed })
	first := traces[max(i, 0)].Start
	b.KnownSince = &first
}

// row is a line of the table: a changed field.
type row struct{ field, change, now string }

// maxShown is the largest length of a value in a row.
const maxShown = 80

// rowsOf returns the rows of a change: one for each changed field, or one for the whole change if the traces do
// not show both values.
func rowsOf(c *blame.Change) []row {
	if len(c.Differences) > 0 {
		rows := make([]row, len(c.Differences))
		for i := range c.Differences {
			d := &c.Differences[i]
			r := row{field: d.Field, now: d.Now}
			switch before, after := trace.Cut(string(d.Before), maxShown), trace.Cut(string(d.After), maxShown); {
			case before == "":
				r.change = "+ " + after
			case after == "":
				r.change = "- " + before
			default:
				r.change = before + " -> " + after
			}
			rows[i] = r
		}
		return rows
	}
	r := row{field: c.Field, change: c.Op, now: c.Now}
	if r.field == "" {
		r.field = c.Path
	}
	switch {
	case c.WasBytes > 0 && c.Op != "remove":
		r.change = fmt.Sprintf("%s, was %d bytes or more", c.Op, c.WasBytes)
	case c.ByKind == trace.ByInitializer && c.Path == "/metadata/initializers":
		r.change = "waits for it"
	case c.Op == "merge":
		r.change = "merged " + trace.Cut(string(c.Value), maxShown)
	case len(c.Was) > 0 && len(c.Value) > 0:
		r.change = "as before"
	case len(c.Value) > 0:
		r.change = "+ " + trace.Cut(string(c.Value), maxShown)
	}
	return []row{r}
}

func (b *blamed) print(out, notes io.Writer) error {
	if len(b.Changes) == 0 {
		terminal.Fprintf(notes, "No trace shows a change of %s by admission.\n", b.Object)
	} else {
		table := terminal.NewTable(terminal.Column{Title: "FIELD"}, terminal.Column{Title: "CHANGE"}, terminal.Column{Title: "SET BY"}, terminal.Column{Title: "NOW"},
			terminal.Column{Title: "REQUEST", Below: true}, terminal.Column{Title: "AGE"}, terminal.Column{Title: "TRACE", Below: true})
		for i := range b.Changes {
			c := &b.Changes[i]
			by := c.By
			if c.ByKind == trace.ByPolicy || c.ByKind == trace.ByInitializer {
				by = c.ByKind + " " + by
			}
			for _, row := range rowsOf(c) {
				table.Row(row.field, row.change, by, row.now, c.Operation+" by "+c.User, duration.HumanDuration(time.Since(c.Time.Time)), c.Trace)
			}
		}
		if err := command.WriteTable(out, table); err != nil {
			return err
		}
	}
	switch {
	case b.KnownSince != nil && b.log:
		terminal.Fprintf(notes, "The audit log has writes of this kind since %s.\n", b.KnownSince.UTC().Format(time.RFC3339))
	case b.KnownSince != nil:
		terminal.Fprintf(notes, "The server's traces go back to %s; of several servers, each has its own.\n", b.KnownSince.UTC().Format(time.RFC3339))
	}
	for _, unknown := range b.Unknown {
		terminal.Fprintf(notes, "Unknown: %s.\n", unknown)
	}
	return nil
}
