package cli

import (
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
	"k8s.io/apimachinery/pkg/util/duration"
	kjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

type blameOptions struct {
	initializersOptions
}

func newBlame(streams Streams) *cobra.Command {
	return newBlameCommand(func(ctx context.Context, o *blameOptions) error { return o.run(ctx, streams) })
}

func newBlameCommand(run func(context.Context, *blameOptions) error) *cobra.Command {
	o := &blameOptions{}
	cmd := &cobra.Command{
		Use:   "blame KIND/NAME",
		Short: "Show which webhook, policy, plugin or initializer set which field of an object",
		Long: `Show which fields of an object were set by webhooks, policies, compiled-in
plugins and initializers, and in which request. It reads the traces that the
server keeps, and says how far back they go. It knows nothing of earlier
requests.

CHANGE is the value after + for a field that was added, after - for one that was
removed, and BEFORE -> AFTER otherwise. Elements of lists are named by what
identifies them, as in spec.containers[name=web].image. NOW says whether the
object still has what was set. A field that is not listed was in the request
itself, or was set by the server, or was set before the oldest trace.`,
		Example: `  # who changed this pod while it was admitted
  gatehouse blame pod/web-1 -n shop

  # the same, for a program
  gatehouse blame deployment/web -n shop -o json`,
		Args: o.oneObject(1),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf("output", o.output, "text", "json", "yaml"); err != nil {
				return err
			}
			return run(cmd.Context(), o)
		},
	}
	addSection(cmd, "Output", func(f *pflag.FlagSet) {
		f.StringVarP(&o.output, "output", "o", "text", "text, json or yaml")
	})
	o.cluster = newCluster(cmd)
	completesObject(cmd, o.cluster.kindNames, o.cluster.objectNames(cmd))
	completes(cmd, "output", values("text", "json", "yaml"))
	return cmd
}

// blame is what is known of who set which fields of an object.
type blame struct {
	// Object is the object, as the command line names it, Namespace its namespace.
	Object    string `json:"object"`
	Namespace string `json:"namespace,omitempty"`
	// Changes are in the order in which they were made.
	Changes []change `json:"changes"`
	// KnownSince is how far the traces of the server go back. Created reports whether the one
	// of the object's creation is among them.
	KnownSince *metav1.MicroTime `json:"knownSince,omitempty"`
	Created    bool              `json:"created"`
	// Unknown says what is not known, and why.
	Unknown []string `json:"unknown,omitempty"`
}

// change is a field that somebody set.
type change struct {
	// Path is a JSON pointer. Op is the operation of the patch: add, remove, replace,
	// move or copy; or merge for a field of an apply configuration.
	Path string `json:"path"`
	Op   string `json:"op"`
	// Value is what was set, if the traces show it.
	Value json.RawMessage `json:"value,omitempty"`
	// Field is the path with elements of lists by what names them, as in
	// spec.containers[name=web].image. Was is what the change replaced or removed; WasBytes is
	// set instead when that is too large for traces.
	Field    string          `json:"field,omitempty"`
	Was      json.RawMessage `json:"was,omitempty"`
	WasBytes int             `json:"wasBytes,omitempty"`
	// Differences are the fields that the change gave another value, as far as the traces
	// show both values.
	Differences []fieldDifference `json:"differences,omitempty"`
	// Plugin is the admission plugin, and By names who changed the field through it: a
	// webhook as CONFIGURATION/NAME, a policy, an initializer, or the plugin itself. ByKind
	// says which: webhook, policy, initializer or plugin.
	Plugin string `json:"plugin"`
	By     string `json:"by"`
	ByKind string `json:"byKind"`
	// Now is same, changed or unknown.
	Now string `json:"now"`
	// Trace and Time are those of the request, Operation and User what it was.
	Trace     string           `json:"trace"`
	Time      metav1.MicroTime `json:"time"`
	Operation string           `json:"operation"`
	User      string           `json:"user,omitempty"`
}

// fieldDifference is a field that has another value after a change. A value is absent when
// the field was not there.
type fieldDifference struct {
	Field  string          `json:"field"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	// Now is same, changed or unknown.
	Now string `json:"now"`
}

// What can change a field.
const (
	byWebhook     = "webhook"
	byPolicy      = "policy"
	byInitializer = "initializer"
	byPlugin      = "plugin"
)

func (o *blameOptions) run(ctx context.Context, streams Streams) error {
	s, err := o.open()
	if err != nil {
		return err
	}
	kind, name, ok := strings.Cut(o.object, "/")
	if !ok || kind == "" || name == "" {
		return usageError{fmt.Errorf("%q is not of the form KIND/NAME, such as deployment/web", o.object)}
	}
	kinds, err := s.resources([]string{kind}, "")
	if err != nil {
		return err
	}
	r := kinds[0]
	b := &blame{Object: r.GroupResource().String() + "/" + name, Changes: []change{}}
	all := s.all.Resource(admissionTraces)
	var client interface {
		List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error)
	} = all
	if r.namespaced {
		b.Namespace = s.namespace
		client = all.Namespace(s.namespace)
	}
	list, err := client.List(ctx, metav1.ListOptions{FieldSelector: fields.SelectorFromSet(fields.Set{
		"resource": r.Resource + "." + r.Group, "name": name, "dryRun": "false",
	}).String()})
	if err != nil {
		return traceError(err)
	}
	traces, err := decodeTraces(list)
	if err != nil {
		return err
	}
	object, err := s.client(r).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		object = nil
		if len(traces) == 0 {
			return err
		}
		b.Unknown = append(b.Unknown, "the object does not exist now: the changes are those of earlier objects with this name")
	case apierrors.IsForbidden(err):
		object = nil
		b.Unknown = append(b.Unknown, "whether the object still has what was set: you are not allowed to get it")
	case err != nil:
		return err
	}
	b.judge(traces, object)
	b.oldest(ctx, client)
	if o.output != "text" {
		return printAs(streams.Out, o.output, b)
	}
	return b.print(streams.Out, streams.Err)
}

// judge takes the changes from the traces. object is nil when it cannot be read.
func (b *blame) judge(traces []*v1alpha1.AdmissionTrace, object *unstructured.Unstructured) {
	redacted, created := false, false
	for _, t := range traces {
		if t.Outcome != trace.OutcomeAllowed && t.Outcome != trace.OutcomeFailedOpen {
			continue
		}
		if t.Request.Operation == "CONNECT" {
			continue
		}
		if object != nil && t.Request.UID != "" && t.Request.UID != string(object.GetUID()) {
			// An earlier object of the same name.
			continue
		}
		created = created || t.Request.Operation == "CREATE" && t.Request.Subresource == ""
		steps := lastAttempt(t.Steps)
		for i := range steps {
			before := len(b.Changes)
			b.step(t, &steps[i], object)
			redacted = redacted || t.Redacted && len(b.Changes) > before
		}
	}
	if redacted {
		b.Unknown = append(b.Unknown, "values: the server leaves them out of traces")
	}
	b.Created = created
	if object == nil {
		return
	}
	if !created {
		b.Unknown = append(b.Unknown, fmt.Sprintf("what was set when the object was created at %s: no trace covers that time", object.GetCreationTimestamp().UTC().Format(time.RFC3339)))
	}
}

// lastAttempt returns the steps of the attempt that was stored. A write that met another one
// is judged again, on the object as it is then.
func lastAttempt(steps []trace.StepRecord) []trace.StepRecord {
	for i := len(steps) - 1; i > 0; i-- {
		if s, first := &steps[i], &steps[0]; s.Plugin == first.Plugin && s.Pass == first.Pass && s.Round == first.Round && s.Namespace == first.Namespace && s.Name == first.Name {
			return steps[i:]
		}
	}
	return steps
}

// step takes the changes from one step: what it gave the object to wait for, and what a
// compiled-in plugin, an initializer, a policy or a webhook changed.
func (b *blame) step(t *v1alpha1.AdmissionTrace, step *trace.StepRecord, object *unstructured.Unstructured) {
	from := change{Plugin: step.Plugin, Trace: t.ID, Time: t.Start, Operation: t.Request.Operation, User: t.Request.User, Now: "unknown"}
	for _, name := range step.Pending {
		c := from
		c.Path, c.Op, c.By, c.ByKind = "/metadata/initializers", "add", name, byInitializer
		b.Changes = append(b.Changes, c)
	}
	// version is set when the paths are those of another version than the request's.
	patched := func(patch []trace.PatchOperation, byKind, by, version string) {
		for i := range patch {
			p := &patch[i]
			if p.Op == "test" {
				continue
			}
			c := from
			c.Path, c.Op, c.Value, c.By, c.ByKind = p.Path, p.Op, p.Value, by, byKind
			c.Field, c.Was, c.WasBytes = p.Field, p.Was, p.WasBytes
			seen, other := object, ""
			switch {
			case version != "":
				other = version + " "
			case t.Request.Subresource == "" || t.Request.Subresource == "status":
				c.Now = now(object, p)
			default:
				other = t.Request.Subresource + " "
			}
			if other != "" {
				// The paths are not those of the object.
				seen, c.Path = nil, other+c.Path
				if c.Field != "" {
					c.Field = other + c.Field
				}
			}
			c.Differences = differences(seen, p, c.Field)
			b.Changes = append(b.Changes, c)
		}
	}
	patched(step.Patch, byPlugin, step.Plugin, "")
	patched(step.Written, byInitializer, strings.Join(step.Initializing, ", "), "")
	for i := range step.Judgements {
		j := &step.Judgements[i]
		for k := range j.Evaluations {
			for n := range j.Evaluations[k].Mutations {
				if m := &j.Evaluations[k].Mutations[n]; m.Mutated {
					patched(m.Patch, byPolicy, j.Policy.Configuration, otherVersion(j.Equivalent, j.Kind))
				}
			}
		}
	}
	for i := range step.Calls {
		c := &step.Calls[i]
		patched(c.Patch, byWebhook, c.Webhook.Configuration+"/"+c.Webhook.Name, otherVersion(c.Equivalent, c.Kind))
	}
}

// differences returns the fields that an operation gave another value; nil when the trace
// does not show both values. object is nil when it does not show which it has.
func differences(object *unstructured.Unstructured, p *trace.PatchOperation, field string) []fieldDifference {
	if field == "" || p.WasBytes > 0 {
		return nil
	}
	switch p.Op {
	case "add", "replace":
		if len(p.Value) == 0 {
			return nil
		}
	case "remove":
		if len(p.Was) == 0 {
			return nil
		}
	default:
		return nil
	}
	before, okBefore := decode(p.Was)
	after, okAfter := decode(p.Value)
	if !okBefore || !okAfter {
		return nil
	}
	var list []fieldDifference
	for _, d := range review.Differences(before, after) {
		one := fieldDifference{Field: d.Field(field), Before: encode(d.Before), After: encode(d.After), Now: "unknown"}
		if object != nil {
			part, there := partOf(object, p, d.Path)
			if there && d.After == nil && len(d.Path) > 0 && has(part, d.Before) {
				// A default that was left out in a larger value, and filled in again.
				continue
			}
			one.Now = nowAt(object, p, &d)
		}
		list = append(list, one)
	}
	return list
}

// nowAt reports whether the object has what an operation made of a part of its value.
func nowAt(object *unstructured.Unstructured, p *trace.PatchOperation, d *review.Difference) string {
	if len(d.Path) == 0 {
		return now(object, p)
	}
	part, ok := partOf(object, p, d.Path)
	if ok == (d.After != nil) && (!ok || has(part, d.After)) {
		return "same"
	}
	return "changed"
}

// partOf returns what a path below that of an operation leads to.
func partOf(object *unstructured.Unstructured, p *trace.PatchOperation, path []review.Segment) (part any, ok bool) {
	part, ok = at(object.Object, p.Path)
	for i := 0; ok && i < len(path); i++ {
		part, ok = path[i].Of(part)
	}
	return part, ok
}

// decode reads a value of a trace; none is nil.
func decode(data json.RawMessage) (value any, ok bool) {
	if len(data) == 0 {
		return nil, true
	}
	err := kjson.UnmarshalCaseSensitivePreserveInts(data, &value)
	return value, err == nil
}

func encode(value any) json.RawMessage {
	if value == nil {
		return nil
	}
	data, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return data
}

// otherVersion names the kind that a webhook or a policy saw the object in, when that is
// not the kind of the request.
func otherVersion(equivalent bool, kind trace.KindRecord) string {
	if !equivalent {
		return ""
	}
	return apiVersion(kind)
}

// now reports whether the object has what an operation set.
func now(object *unstructured.Unstructured, p *trace.PatchOperation) string {
	if object == nil {
		return "unknown"
	}
	found, ok := at(object.Object, p.Path)
	switch {
	case p.Op == "remove":
		if ok {
			return "changed"
		}
		return "same"
	case !ok && strings.HasSuffix(p.Path, "/-"):
		return appended(object, p)
	case !ok:
		return "changed"
	case len(p.Value) == 0:
		return "unknown"
	}
	return sameAs(found, p.Value)
}

// appended reports whether a list has the element that was appended to it.
func appended(object *unstructured.Unstructured, p *trace.PatchOperation) string {
	list, _ := at(object.Object, strings.TrimSuffix(p.Path, "/-"))
	elements, ok := list.([]any)
	if !ok {
		return "changed"
	}
	if len(p.Value) == 0 {
		return "unknown"
	}
	for _, element := range elements {
		if sameAs(element, p.Value) == "same" {
			return "same"
		}
	}
	return "changed"
}

// sameAs compares a value of the object with one that was set. Members that were filled
// in with defaults later make no difference.
func sameAs(found any, set json.RawMessage) string {
	want, ok := decode(set)
	if !ok {
		return "unknown"
	}
	if has(found, want) {
		return "same"
	}
	return "changed"
}

func has(found, want any) bool {
	switch w := want.(type) {
	case map[string]any:
		f, ok := found.(map[string]any)
		if !ok {
			return false
		}
		for key, value := range w {
			if !has(f[key], value) {
				return false
			}
		}
		return true
	case []any:
		f, ok := found.([]any)
		return ok && slices.EqualFunc(f, w, has)
	case int64:
		f, ok := found.(float64)
		return found == want || ok && f == float64(w)
	case float64:
		n, ok := found.(int64)
		return found == want || ok && float64(n) == w
	}
	return found == want
}

// at returns what a JSON pointer leads to.
func at(value any, pointer string) (any, bool) {
	if pointer == "" {
		return value, true
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for _, part := range strings.Split(pointer[1:], "/") {
		switch v := value.(type) {
		case map[string]any:
			next, ok := v[unescape.Replace(part)]
			if !ok {
				return nil, false
			}
			value = next
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(v) {
				return nil, false
			}
			value = v[i]
		default:
			return nil, false
		}
	}
	return value, true
}

// oldest finds out how far the traces go back.
func (b *blame) oldest(ctx context.Context, client interface {
	List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error)
}) {
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		b.Unknown = append(b.Unknown, "how far the traces go back: "+err.Error())
		return
	}
	traces, err := decodeTraces(list)
	if err != nil || len(traces) == 0 {
		return
	}
	// Traces of rejected and failed-open writes are kept longer, and say nothing about the
	// rest.
	i := slices.IndexFunc(traces, func(t *v1alpha1.AdmissionTrace) bool { return t.Outcome == trace.OutcomeAllowed })
	first := traces[max(i, 0)].Start
	b.KnownSince = &first
}

// row is a line about a field.
type row struct{ field, change, now string }

// maxShown is how much of a value is in a row.
const maxShown = 80

// rows are the lines about a change: one for each field that has another value, or one for
// the change when the traces do not show both values.
func (c *change) rows() []row {
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
	case c.ByKind == byInitializer && c.Path == "/metadata/initializers":
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

func (b *blame) print(out, notes io.Writer) error {
	if len(b.Changes) == 0 {
		terminal.Fprintf(notes, "No trace shows a change of %s by admission.\n", b.Object)
	} else {
		table := terminal.NewTable(terminal.Column{Title: "FIELD"}, terminal.Column{Title: "CHANGE"}, terminal.Column{Title: "SET BY"}, terminal.Column{Title: "NOW"},
			terminal.Column{Title: "REQUEST", Below: true}, terminal.Column{Title: "AGE"}, terminal.Column{Title: "TRACE", Below: true})
		for i := range b.Changes {
			c := &b.Changes[i]
			by := c.By
			if c.ByKind == byPolicy || c.ByKind == byInitializer {
				by = c.ByKind + " " + by
			}
			for _, row := range c.rows() {
				table.Row(row.field, row.change, by, row.now, c.Operation+" by "+c.User, duration.HumanDuration(time.Since(c.Time.Time)), c.Trace)
			}
		}
		if err := writeTable(out, table); err != nil {
			return err
		}
	}
	if b.KnownSince != nil {
		terminal.Fprintf(notes, "The server's traces go back to %s; of several servers, each has its own.\n", b.KnownSince.UTC().Format(time.RFC3339))
	}
	for _, unknown := range b.Unknown {
		terminal.Fprintf(notes, "Unknown: %s.\n", unknown)
	}
	return nil
}
