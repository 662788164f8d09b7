package changing

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/cli/command"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/lint"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

// NewRollout returns the command gatehouse rollout.
func NewRollout(streams command.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Show and set how hard webhooks and policies are",
		Long: `Show how hard webhook configurations, admission policies and bindings are, and
what the soft ones would have rejected or changed; and make them harder or
softer. A soft one is asked about requests, and rejects and changes nothing.`,
		Example: `  # which are soft, since when, and what they would have done
  gatehouse rollout status

  # the same for one of them, by namespace
  gatehouse rollout status validatingadmissionpolicy/teams

  # warn only; then hard in a quarter of the namespaces; then everywhere
  gatehouse rollout set validatingadmissionpolicy/teams Warn
  gatehouse rollout set validatingadmissionpolicy/teams Warn --in 25%
  gatehouse rollout set validatingadmissionpolicy/teams Deny`,
		Args: command.KnownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRolloutStatus(streams), newRolloutSet(streams))
	return cmd
}

// softKinds are the kinds of registrations that may be soft.
func softKinds() []string {
	kinds := maps.Clone(registrationKinds)
	delete(kinds, "initializerconfigurations")
	return slices.Sorted(maps.Keys(kinds))
}

// rolloutTarget is the object that a user wrote as KIND/NAME.
type rolloutTarget struct{ plural, name string }

func rolloutTargetOf(text string) (rolloutTarget, error) {
	kind, name, ok := strings.Cut(text, "/")
	if !ok || kind == "" || name == "" {
		return rolloutTarget{}, command.Usagef("%q is not of the form KIND/NAME, such as validatingadmissionpolicy/teams", text)
	}
	plural, ok := registrationPlural(kind)
	if !ok || !slices.Contains(softKinds(), plural) {
		return rolloutTarget{}, command.Usagef("%q cannot be soft: use one of %s", kind, strings.Join(softKinds(), ", "))
	}
	return rolloutTarget{plural, name}, nil
}

func registrationResource(plural string) schema.GroupVersionResource {
	version := "v1"
	if plural == "externaladmissionhookconfigurations" {
		version = "v1alpha1"
	}
	return schema.GroupVersionResource{Group: registration.GroupName, Version: version, Resource: plural}
}

type rolloutStatusOptions struct {
	cluster *command.Cluster
	target  *rolloutTarget
	output  string
}

func newRolloutStatus(streams command.Streams) *cobra.Command {
	o := &rolloutStatusOptions{}
	cmd := &cobra.Command{
		Use:   "status [KIND/NAME]",
		Short: "Show what soft webhooks and policies would have done",
		Long: `Show the webhook configurations, policies and bindings that are soft: their
mode, where they are hard already, since when, and how many requests they would
have rejected or changed. The counts come from the metrics of the server that
answers, since it started, and by namespace from the traces that it keeps.`,
		Example: `  gatehouse rollout status
  gatehouse rollout status validatingadmissionpolicy/teams
  gatehouse rollout status -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return command.Usagef("unexpected argument %q", args[1])
			}
			if len(args) == 1 {
				target, err := rolloutTargetOf(args[0])
				o.target = &target
				return err
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), streams)
		},
	}
	command.AddSection(cmd, "Output", func(f *pflag.FlagSet) {
		command.Choose(f, &o.output, "output", "o", "text", "text, json or yaml", "text", "json", "yaml")
	})
	o.cluster = command.NewCluster(cmd)
	command.CompletesObject(cmd, softKinds, func(kind string) []string { return registrationNames(cmd, o.cluster, kind) })
	return cmd
}

// registrationNames are the names of the objects of a kind.
func registrationNames(cmd *cobra.Command, c *command.Cluster, kind string) []string {
	plural, ok := registrationPlural(kind)
	if !ok {
		return nil
	}
	return c.ObjectNames(cmd)(plural + "." + registration.GroupName)
}

// rolloutStatus is what is known of one object; its JSON form is that of -o json.
type rolloutStatus struct {
	// Kind and Name are the object.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Enforcement and Rollout are its annotations. Enforcement is Deny without one.
	Enforcement string `json:"enforcement"`
	Rollout     string `json:"rollout,omitempty"`
	// Since is when the annotation was written last, as far as that is recorded.
	Since *metav1.Time `json:"since,omitempty"`
	// WouldReject and WouldChange count requests since the server started; absent when its
	// metrics may not be read. Those of a binding are counted with its policy.
	WouldReject *int64 `json:"wouldReject,omitempty"`
	WouldChange *int64 `json:"wouldChange,omitempty"`
	// Namespaces count those of the traces that the server keeps.
	Namespaces []rolloutNamespace `json:"namespaces,omitempty"`
}

// rolloutNamespace counts the requests of one namespace.
type rolloutNamespace struct {
	Namespace   string `json:"namespace"`
	WouldReject int    `json:"wouldReject"`
	WouldChange int    `json:"wouldChange"`
	// Example is a message, or a change, and Trace the trace that has it.
	Example string `json:"example,omitempty"`
	Trace   string `json:"trace,omitempty"`
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
	statuses := []rolloutStatus{}
	for i := range objects {
		statuses = append(statuses, rolloutStatusOf(&objects[i], spared, traces))
	}
	if o.output != "text" {
		return command.PrintAs(streams.Out, o.output, map[string]any{"items": statuses})
	}
	if len(statuses) == 0 {
		terminal.Fprintf(streams.Out, "All webhooks and policies are hard.\n")
		return nil
	}
	if note != "" {
		terminal.Fprintf(streams.Err, "%s\n", note)
	}
	return o.print(streams, statuses)
}

// enforcesSoftly returns an error when a server is not Gatehouse, and takes all for hard.
func enforcesSoftly(ctx context.Context, client dynamic.Interface, host string) error {
	if _, err := client.Resource(registrationStates).List(ctx, metav1.ListOptions{Limit: 1}); apierrors.IsNotFound(err) {
		return fmt.Errorf("the server at %s is not Gatehouse: it ignores how soft a webhook or policy is", host)
	}
	return nil
}

// objects are those that were asked for: one, or all with an annotation.
func (o *rolloutStatusOptions) objects(ctx context.Context, client dynamic.Interface) ([]unstructured.Unstructured, error) {
	if o.target != nil {
		u, err := client.Resource(registrationResource(o.target.plural)).Get(ctx, o.target.name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return []unstructured.Unstructured{*u}, nil
	}
	var found []unstructured.Unstructured
	for _, plural := range softKinds() {
		list, err := client.Resource(registrationResource(plural)).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if _, soft := list.Items[i].GetAnnotations()[registration.EnforcementAnnotation]; soft {
				found = append(found, list.Items[i])
			}
		}
	}
	return found, nil
}

// sparedCounts are counts by the label name or policy, and by what would have happened.
type sparedCounts map[[3]string]int64

// sparedByMetrics reads what the metrics of the server count; nil and why when it cannot.
func sparedByMetrics(ctx context.Context, c *command.Cluster) (sparedCounts, string) {
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
		return nil, "The counts are those of the traces only: " + err.Error()
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(data))
	if err != nil {
		return nil, "The counts are those of the traces only: reading the metrics: " + err.Error()
	}
	counts := sparedCounts{}
	for family, label := range map[string]string{"gatehouse_admission_webhook_spared_requests_total": "name", "gatehouse_admission_policy_spared_requests_total": "policy"} {
		for _, m := range families[family].GetMetric() {
			counts[[3]string{label, labelOf(m, label), labelOf(m, "would")}] += int64(m.GetCounter().GetValue())
		}
	}
	return counts, ""
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func rolloutStatusOf(u *unstructured.Unstructured, spared sparedCounts, traces []*v1alpha1.AdmissionTrace) rolloutStatus {
	annotations := u.GetAnnotations()
	s := rolloutStatus{
		Kind: u.GetKind(), Name: u.GetName(), Rollout: annotations[registration.RolloutAnnotation],
		Enforcement: cmp.Or(annotations[registration.EnforcementAnnotation], string(registration.ModeDeny)),
	}
	if at := lint.EnforcedSince(u); !at.IsZero() {
		s.Since = &metav1.Time{Time: at}
	}
	label, names := "policy", []string{u.GetName()}
	if policy, _, _ := unstructured.NestedString(u.Object, "spec", "policyName"); policy != "" {
		names = []string{policy}
	}
	if entries, err := registration.Entries(u); err == nil && len(entries) > 0 && entries[0].Name != "" {
		label, names = "name", nil
		for _, e := range entries {
			names = append(names, e.Name)
		}
	}
	if spared != nil {
		var reject, change int64
		for _, name := range names {
			reject += spared[[3]string{label, name, "reject"}]
			change += spared[[3]string{label, name, "change"}]
		}
		s.WouldReject, s.WouldChange = &reject, &change
	}
	s.Namespaces = sparedByNamespace(u, traces)
	return s
}

// sparedByNamespace counts what an object would have done by the traces, by namespace.
func sparedByNamespace(u *unstructured.Unstructured, traces []*v1alpha1.AdmissionTrace) []rolloutNamespace {
	found := map[string]*rolloutNamespace{}
	for _, t := range traces {
		n := found[t.Request.Namespace]
		if n == nil {
			n = &rolloutNamespace{Namespace: t.Request.Namespace}
		}
		if n.count(t, t.SparedBy(u.GetKind(), u.GetName())) {
			found[n.Namespace] = n
		}
	}
	var list []rolloutNamespace
	for _, name := range slices.Sorted(maps.Keys(found)) {
		list = append(list, *found[name])
	}
	slices.SortStableFunc(list, func(a, b rolloutNamespace) int { return cmp.Compare(b.WouldReject, a.WouldReject) })
	return list
}

// count takes in what an object would have done with the request of a trace, and reports whether that is
// anything. A request is counted once. The example is of a rejection, if there is one.
func (n *rolloutNamespace) count(t *v1alpha1.AdmissionTrace, acts iter.Seq[trace.Act]) bool {
	reject, change := false, false
	for act := range acts {
		example := act.Message
		if act.Deed == trace.WouldReject {
			reject = true
		} else {
			change, example = true, "would change "+strings.Join(act.Fields(), ", ")
		}
		if n.Trace == "" || act.Deed == trace.WouldReject && n.WouldReject == 0 {
			n.Example, n.Trace = example, t.ID
		}
	}
	if reject {
		n.WouldReject++
	}
	if change {
		n.WouldChange++
	}
	return reject || change
}

func (o *rolloutStatusOptions) print(streams command.Streams, statuses []rolloutStatus) error {
	counted := func(n *int64) any {
		if n == nil {
			return "?"
		}
		return *n
	}
	table := terminal.NewTable(terminal.Titles("OBJECT", "ENFORCEMENT", "HARD IN", "AGE", "WOULD REJECT", "WOULD CHANGE")...)
	for i := range statuses {
		s := &statuses[i]
		age := "unknown"
		if s.Since != nil {
			age = duration.HumanDuration(time.Since(s.Since.Time))
		}
		hard := cmp.Or(s.Rollout, "no namespace")
		if s.Enforcement == string(registration.ModeDeny) {
			hard = "all"
		}
		table.Row(s.Kind+"/"+s.Name, s.Enforcement, hard, age, counted(s.WouldReject), counted(s.WouldChange))
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
		for _, n := range s.Namespaces {
			table.Row(cmp.Or(n.Namespace, "-"), n.WouldReject, n.WouldChange, n.Trace, n.Example)
		}
		if err := command.WriteTable(streams.Out, table); err != nil {
			return err
		}
	}
	return nil
}

type rolloutSetOptions struct {
	cluster *command.Cluster
	target  rolloutTarget
	mode    registration.Mode
	webhook string
	in      string
}

func newRolloutSet(streams command.Streams) *cobra.Command {
	o := &rolloutSetOptions{}
	cmd := &cobra.Command{
		Use:   "set KIND/NAME MODE",
		Short: "Make a webhook or policy harder or softer",
		Long: `Set how hard a webhook configuration, an admission policy or a binding is. MODE
is Deny, Warn or Audit. With --in, a soft one is hard already in a share of the
namespaces, or in those that a label selector selects. The command writes the
annotations gatehouse.dev/enforcement and gatehouse.dev/rollout. 'gatehouse
wait-in-force' waits until all servers enforce them.`,
		Example: `  # record only, for one webhook of a configuration
  gatehouse rollout set validating/images Audit --webhook images.example.com

  # hard where the label stage is dev or test, a warning elsewhere
  gatehouse rollout set validating/images Warn --in 'stage in (dev, test)'

  # hard everywhere
  gatehouse rollout set validating/images Deny`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return command.Usagef("name one object and its mode, as KIND/NAME MODE")
			}
			var err error
			if o.target, err = rolloutTargetOf(args[0]); err != nil {
				return err
			}
			i := slices.IndexFunc(registration.Modes, func(m registration.Mode) bool { return strings.EqualFold(string(m), args[1]) })
			if i < 0 {
				return command.Usagef("%q is not a mode: use Deny, Warn or Audit", args[1])
			}
			o.mode = registration.Modes[i]
			if o.mode == registration.ModeDeny && o.in != "" {
				return command.Usagef("--in needs the mode Warn or Audit, which counts outside of these namespaces")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	command.AddSection(cmd, "What to set", func(f *pflag.FlagSet) {
		f.SortFlags = false
		f.StringVar(&o.in, "in", "", "where it is hard already: a share such as 25%, or a label selector")
		f.StringVar(&o.webhook, "webhook", "", "only this webhook of the configuration")
	})
	o.cluster = command.NewCluster(cmd)
	command.CompletesObject(cmd, softKinds, func(kind string) []string { return registrationNames(cmd, o.cluster, kind) })
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
	objects := client.Resource(registrationResource(o.target.plural))
	u, err := objects.Get(ctx, o.target.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	value := o.value(u.GetAnnotations()[registration.EnforcementAnnotation])
	annotations := map[string]any{registration.EnforcementAnnotation: value, registration.RolloutAnnotation: nil}
	switch {
	case o.in != "":
		annotations[registration.RolloutAnnotation] = o.in
	case o.webhook != "":
		// The rollout is that of all webhooks of the configuration.
		delete(annotations, registration.RolloutAnnotation)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": u.GetResourceVersion(), "annotations": annotations}})
	if err != nil {
		return err
	}
	stored, err := objects.Patch(ctx, o.target.name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "gatehouse"})
	if err != nil {
		return err
	}
	text := "enforcement " + stored.GetAnnotations()[registration.EnforcementAnnotation]
	if in := stored.GetAnnotations()[registration.RolloutAnnotation]; in != "" {
		text += ", hard in " + in
	}
	terminal.Fprintf(streams.Out, "%s/%s: %s\n", stored.GetKind(), stored.GetName(), text)
	return nil
}

// value is the new value of the annotation: the mode of all webhooks, or that of one among those
// of the others.
func (o *rolloutSetOptions) value(old string) string {
	if o.webhook == "" {
		return string(o.mode)
	}
	var items []string
	for item := range strings.SplitSeq(old, ",") {
		if item = strings.TrimSpace(item); item != "" && !strings.HasPrefix(item, o.webhook+"=") {
			items = append(items, item)
		}
	}
	return strings.Join(append(items, o.webhook+"="+string(o.mode)), ",")
}
