package after

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/commands/auditlog"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/requestlog"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
)

// auditPolicy is the output of --audit-policy: an audit policy with the most useful log.
//
//go:embed auditpolicy.yaml
var auditPolicy string

// logBytes limits the memory of the traces of an audit log.
const logBytes = 32 << 20

// auditLog is an audit log of a cluster, read instead of a server's traces.
type auditLog struct {
	paths []string
	// registrations are files with the webhooks and policies that admitted the requests. fromCluster is the
	// kubeconfig of a cluster that has them.
	registrations []string
	fromCluster   string
	// snapshot is a file of gatehouse snapshot that has them.
	snapshot string
	cluster  *command.Cluster
}

// addFlags adds the flags of the audit log.
func (a *auditLog) addFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&a.paths, "audit-log", nil, "`path` of an audit log of any cluster, a file or a directory with rotated files, or - for standard input; may be repeated")
	f.StringArrayVar(&a.registrations, "registrations", nil, "`path` of the webhooks and policies at the time of its requests; derives the calls; may be repeated")
	f.StringVar(&a.fromCluster, "from-cluster", "", "`kubeconfig` of the cluster of the log, for the webhooks and policies at the time of its requests")
	f.StringVar(&a.snapshot, "snapshot", "", "`file` of 'gatehouse snapshot' with the webhooks and policies at the time of its requests")
}

// check rejects conflicting flags. With --from-cluster it selects that cluster.
func (a *auditLog) check() error {
	switch {
	case len(a.paths) == 0 && len(a.registrations) > 0:
		return command.Usagef("--registrations derives who was asked from an audit log: name it with --audit-log")
	case len(a.paths) == 0 && a.fromCluster != "":
		return command.Usagef("--from-cluster derives who was asked from an audit log: name it with --audit-log, or name a server with --kubeconfig")
	case len(a.paths) == 0 && a.snapshot != "":
		return command.Usagef("--snapshot derives who was asked from an audit log: name it with --audit-log")
	case len(a.registrations) > 0 && a.fromCluster != "", a.snapshot != "" && len(a.registrations)+len(a.fromCluster) > 0:
		return command.Usagef("--registrations, --from-cluster and --snapshot exclude each other: each is a source of the webhooks and policies at the time of the requests")
	case len(a.paths) > 0 && a.cluster.Flags.KubeConfig+a.cluster.Flags.Context != "":
		return command.Usagef("--audit-log reads no server: name the cluster that it is of with --from-cluster")
	case len(a.paths) > 1 && slices.Contains(a.paths, requestlog.Stdin):
		return command.Usagef("--audit-log -: standard input is one log: leave out the other paths")
	}
	if a.fromCluster != "" {
		a.cluster.Flags.KubeConfig = a.fromCluster
	}
	return nil
}

// world reads the webhooks and policies that admitted the requests.
func (a *auditLog) world(ctx context.Context) (auditlog.Cluster, error) {
	var w *offline.World
	var err error
	from := ""
	switch {
	case len(a.registrations) > 0:
		from = "--registrations"
		w, err = offline.Read(a.registrations)
	case a.snapshot != "":
		from = "--snapshot"
		w, err = readSnapshot(a.snapshot)
	case a.fromCluster != "":
		from = "--from-cluster"
		w, err = connect(ctx, a.cluster)
	}
	if err != nil {
		return auditlog.Cluster{}, fmt.Errorf("%s: %w", from, err)
	}
	if w != nil && a.fromCluster == "" {
		w.Registrations.Kubernetes = true
	}
	return auditlog.NewCluster(w), nil
}

// readSnapshot reads the webhooks and policies of a snapshot.
func readSnapshot(file string) (*offline.World, error) {
	s, err := clustersnapshot.Read(file)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": s.Items})
	if err != nil {
		return nil, err
	}
	w, _, _, err := offline.Survey([]string{manifests.Stdin}, bytes.NewReader(data), &manifests.Ignore{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return w, nil
}

// connect reads the webhooks and policies of a cluster.
func connect(ctx context.Context, c *command.Cluster) (*offline.World, error) {
	config, err := c.Open()
	if err != nil {
		return nil, err
	}
	kinds, err := offline.Discover(config)
	if err != nil {
		return nil, err
	}
	return offline.Connect(ctx, config, kinds)
}

// read returns the wanted traces of the log. It reports unreadable entries on streams.Err.
func (a *auditLog) read(ctx context.Context, streams command.Streams, wanted func(*trace.Trace) bool) (*logTraces, error) {
	if err := command.DiscardLogs(ctx); err != nil {
		return nil, err
	}
	world, err := a.world(ctx)
	if err != nil {
		return nil, err
	}
	shown := terminal.NewProgress(streams.Err, "Reading the audit log", command.ProgressAfter)
	defer shown.End()
	converter, ring := auditlog.NewConverter(world), traces.NewRing(logBytes)
	keep := func(t *trace.Trace) {
		if t != nil && wanted(t) {
			ring.Add(t)
		}
	}
	broken := &requestlog.Count{}
	events := 0
	count, err := requestlog.Events(ctx, a.paths, command.Input(ctx, streams.In), func(event []byte, place string) error {
		t, why := converter.Add(event, place)
		if why != "" {
			broken.LeaveOut(why, place)
		}
		keep(t)
		if events++; events%10_000 == 0 {
			shown.Set(fmt.Sprintf("Read %s", report.Count(events, "event")))
		}
		return nil
	})
	if err != nil {
		return nil, command.UsageError{Err: fmt.Errorf("--audit-log: %w", err)}
	}
	for _, t := range converter.Unanswered(time.Time{}) {
		keep(t)
	}
	shown.End()
	count.LeftOut = append(count.LeftOut, broken.LeftOut...)
	count.Backwards = 0
	for _, text := range count.Sentences() {
		terminal.Fprintf(streams.Err, "%s\n", text)
	}
	if n := ring.Dropped(); n > 0 {
		terminal.Fprintf(streams.Err, "%s left out, the oldest that were allowed first: %d MiB hold no more; name a user, a webhook, an outcome or a namespace\n", report.Count(n, "trace"), logBytes>>20)
	}
	return &logTraces{storage: traces.NewStorage(ring, nil, trace.RecordOptions{})}, nil
}

// logTraces serves the traces of a log through the interface of a server's traces.
type logTraces struct {
	storage   *traces.Storage
	namespace string
}

// in returns the traces of a namespace; empty means all namespaces.
func (l *logTraces) in(namespace string) *logTraces { return &logTraces{l.storage, namespace} }

// List returns the selected traces, the oldest first.
func (l *logTraces) List(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	selector, err := fields.ParseSelector(o.FieldSelector)
	if err != nil {
		return nil, err
	}
	found, err := l.storage.List(request.WithNamespace(ctx, l.namespace), &metainternalversion.ListOptions{FieldSelector: selector})
	if err != nil {
		return nil, err
	}
	items := found.(*v1alpha1.AdmissionTraceList).Items
	slices.SortStableFunc(items, func(a, b v1alpha1.AdmissionTrace) int {
		return cmp.Or(a.Start.Compare(b.Start.Time), cmp.Compare(a.ID, b.ID))
	})
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("AdmissionTraceList"))
	for i := range items {
		t := &items[i]
		t.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("AdmissionTrace"))
		t.ResourceVersion = ""
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(t)
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, unstructured.Unstructured{Object: content})
	}
	return list, nil
}

// Get returns the trace with an ID, or the latest trace of the request with an audit ID.
func (l *logTraces) Get(ctx context.Context, id string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	for _, field := range []string{"metadata.name", "auditID"} {
		list, err := l.List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(field, id).String()})
		if err != nil {
			return nil, err
		}
		if n := len(list.Items); n > 0 {
			return &list.Items[n-1], nil
		}
	}
	return nil, fmt.Errorf("the audit log has no request with the ID %s, neither of a trace nor an audit ID", id)
}
