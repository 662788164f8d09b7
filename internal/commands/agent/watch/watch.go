package watch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/auditreport"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/kit/survive"
	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/election"
)

// LeaseName is the name of the Lease.
const LeaseName = "gatehouse-agent"

// Options are the options of a Watcher.
type Options struct {
	// Config connects to the cluster.
	Config *rest.Config
	// Namespace of the Lease, and the identity of this process in it.
	Namespace, Identity string
	// Lint enables linting of the registrations.
	Lint bool
	// Audit, if set, evaluates the objects of the cluster against its policies.
	Audit func(context.Context) (*auditreport.Report, error)
}

// Watcher watches a cluster. Use New to create one.
type Watcher struct {
	options  Options
	election *election.Election
	client   kubernetes.Interface
	objects  dynamic.Interface
	metadata metadata.Interface

	// telling is held while the findings of a source are written to reports.
	telling sync.Mutex
	// known are the IDs of findings for which events exist, by source. missing is set after the log has reported that
	// the cluster has no report kind.
	known   map[source]map[string]bool
	missing bool
}

// source is a kind of work with findings.
type source string

const (
	ofLint  source = "lint"
	ofAudit source = "audit"
)

// qps and burst limit the requests to the API server: lint reads some dozens of lists.
const qps, burst = 20, 50

// New checks the options. It does not call the API server.
func New(o Options) (*Watcher, error) {
	registerMetrics()
	o.Config = rest.CopyConfig(o.Config)
	o.Config.QPS, o.Config.Burst, o.Config.UserAgent, o.Config.WarningHandler = qps, burst, "gatehouse-agent", rest.NoWarnings{}
	w := &Watcher{options: o}
	var err error
	if w.client, err = kubernetes.NewForConfig(o.Config); err != nil {
		return nil, err
	}
	if w.objects, err = dynamic.NewForConfig(o.Config); err != nil {
		return nil, err
	}
	if w.metadata, err = metadata.NewForConfig(o.Config); err != nil {
		return nil, err
	}
	w.election = election.New(election.Options{Leases: w.client.CoordinationV1(), Namespace: o.Namespace, Name: LeaseName, Identity: o.Identity})
	return w, nil
}

// Run works while this process holds the Lease, until ctx ends.
func (w *Watcher) Run(ctx context.Context) { w.election.Run(ctx, w.act) }

// act works until ctx ends.
func (w *Watcher) act(ctx context.Context) {
	w.known = map[source]map[string]bool{ofLint: {}, ofAudit: {}}
	if err := w.remember(ctx); err != nil {
		klog.FromContext(ctx).Info("The reports of an earlier run cannot be read: events may be written again", "err", err)
	}
	work := []struct {
		source  source
		wanted  bool
		do      func(context.Context) ([]finding, error)
		changed chan struct{}
	}{
		{ofLint, w.options.Lint, w.lint, make(chan struct{}, 1)},
		{ofAudit, w.options.Audit != nil, w.audit, make(chan struct{}, 1)},
	}
	stop := w.changes(ctx, func(resource schema.GroupVersionResource) {
		for i := range work {
			if work[i].source == ofAudit && !judges(resource) {
				continue
			}
			select {
			case work[i].changed <- struct{}{}:
			default:
			}
		}
	})
	defer stop()
	// The next leader sets the metrics.
	defer resetMetrics()
	var running sync.WaitGroup
	for _, one := range work {
		running.Go(func() {
			survive.Run(ctx, string(one.source), func(ctx context.Context) {
				if !one.wanted {
					// Remove reports of an earlier run.
					if err := w.tell(ctx, one.source, nil); err != nil && ctx.Err() == nil {
						klog.FromContext(ctx).Info("Could not remove earlier reports", "of", one.source, "err", err)
					}
					return
				}
				failures.WithLabelValues(string(one.source)).Add(0)
				repeat(ctx, one.changed, func() error {
					found, err := one.do(ctx)
					if err == nil {
						err = w.tell(ctx, one.source, found)
					}
					switch {
					case ctx.Err() != nil:
					case err != nil:
						failures.WithLabelValues(string(one.source)).Inc()
						klog.FromContext(ctx).Error(err, "Could not look for problems in the cluster", "by", one.source)
					default:
						lastRun.WithLabelValues(string(one.source)).SetToCurrentTime()
					}
					return err
				})
			})
		})
	}
	running.Wait()
}

// judges reports whether a resource affects the evaluation of objects: policies and their bindings.
func judges(resource schema.GroupVersionResource) bool {
	return slices.ContainsFunc(registration.Sources(), func(d registration.Descriptor) bool {
		return resource.Group == registration.GroupName && d.Resource == resource.Resource && (d.Policies || d.Binds)
	})
}

// Intervals of work: regular, after an error, and after changes that have paused for quiet or lasted for atMost.
const (
	every  = time.Hour
	again  = time.Minute
	quiet  = 2 * time.Second
	atMost = 30 * time.Second
)

// repeat calls do at once, and again every hour and after changes, until ctx ends. A burst of changes leads to one
// call.
func repeat(ctx context.Context, changed <-chan struct{}, do func() error) {
	for ctx.Err() == nil {
		pause := every
		if do() != nil {
			pause = again
		}
		timer := time.NewTimer(pause)
		select {
		case <-changed:
			settle(ctx, changed)
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// settle waits until the changes pause.
func settle(ctx context.Context, changed <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for {
		still := time.NewTimer(quiet)
		select {
		case <-changed:
			still.Stop()
		case <-still.C:
			return
		case <-ctx.Done():
			still.Stop()
			return
		}
	}
}

// changes calls changed when a registration or a CRD changes, until stop is called. Resources that the cluster does not
// serve are not watched.
func (w *Watcher) changes(ctx context.Context, changed func(schema.GroupVersionResource)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	informers := metadatainformer.NewSharedInformerFactoryWithOptions(w.metadata, 0, metadatainformer.WithTransform(withoutManagers))
	watched := []schema.GroupResource{{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}}
	for _, d := range registration.Sources() {
		watched = append(watched, schema.GroupResource{Group: registration.GroupName, Resource: d.Resource})
	}
	kinds, err := offline.Discover(w.options.Config)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Changes of registrations are not watched")
	}
	for _, resource := range watched {
		if kinds == nil {
			break
		}
		gvr, served := kinds.Served(resource.Group, resource.Resource)
		if !served {
			continue
		}
		handler := cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(_ any, first bool) {
				if !first {
					changed(gvr)
				}
			},
			UpdateFunc: func(before, after any) {
				b, ok := before.(*metav1.PartialObjectMetadata)
				a, also := after.(*metav1.PartialObjectMetadata)
				// Status updates are frequent and irrelevant.
				if ok && also && (a.UID != b.UID || a.Generation != b.Generation || !maps.Equal(a.Annotations, b.Annotations) || !maps.Equal(a.Labels, b.Labels)) {
					changed(gvr)
				}
			},
			DeleteFunc: func(any) { changed(gvr) },
		}
		// The informer has not started, so there is no error.
		_, _ = informers.ForResource(gvr).Informer().AddEventHandler(handler)
	}
	informers.Start(ctx.Done())
	return func() {
		cancel()
		informers.Shutdown()
	}
}

// withoutManagers removes managedFields, the largest and unused part of the metadata.
func withoutManagers(obj any) (any, error) {
	if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
		m.ManagedFields = nil
	}
	return obj, nil
}

// lintTimeout bounds a run of lint. Each connection to a webhook is bounded, too.
const lintTimeout = 10 * time.Minute

// lint checks the registrations, and connects to the webhooks.
func (w *Watcher) lint(ctx context.Context) ([]finding, error) {
	ctx, cancel := context.WithTimeout(ctx, lintTimeout)
	defer cancel()
	kinds, err := offline.Discover(w.options.Config)
	if err != nil {
		return nil, err
	}
	cluster, err := offline.Connect(ctx, w.options.Config, kinds)
	if err != nil {
		return nil, fmt.Errorf("reading the registrations: %w", err)
	}
	world, err := cluster.Lint(ctx, time.Now(), nil)
	if err != nil {
		return nil, fmt.Errorf("reading the cluster: %w", err)
	}
	connector := &offline.Connector{World: world, Inside: offline.InCluster(w.options.Config)}
	world.Served = connector.Present(ctx, world.Addresses(), nil)
	checked := lint.Check(ctx, world, lint.Options{})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for _, sentence := range checked.Unseen {
		klog.FromContext(ctx).V(1).Info("Not seen", "what", sentence)
	}
	setExpiries(world.Expiries())
	var found []finding
	for i := range checked.Findings {
		found = append(found, ofFault(world, &checked.Findings[i]))
	}
	return found, nil
}

// audit evaluates the objects of the cluster against its policies.
func (w *Watcher) audit(ctx context.Context) ([]finding, error) {
	report, err := w.options.Audit(ctx)
	if err != nil {
		return nil, err
	}
	objects.WithLabelValues("judged").Set(float64(report.Judged))
	objects.WithLabelValues("left_out").Set(float64(report.Input.Left()))
	for _, sentence := range append(report.Input.Sentences(), report.Notes...) {
		klog.FromContext(ctx).V(1).Info("Not evaluated", "what", sentence)
	}
	var found []finding
	for _, f := range report.Findings {
		found = append(found, ofAuditFinding(f))
	}
	return found, nil
}
