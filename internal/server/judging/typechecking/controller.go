package typechecking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	applyv1 "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	clientv1 "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	// interval is the least time between two checks of one policy (D61).
	interval = time.Second
	// perSecond and burst bound the rate of checks. Many policies at once get their status
	// gradually, because every write of a status makes the servers compile the policies again.
	perSecond, burst = 2, 100
	// attempt bounds one check with its write.
	attempt = 30 * time.Second
	// firstRetry and lastRetry bound how long the next attempt waits after a
	// failure.
	firstRetry, lastRetry = 100 * time.Millisecond, 30 * time.Second
	// fieldManager owns the status, as in a cluster.
	fieldManager = "validatingadmissionpolicy-status"
)

// Options are the inputs of a Controller. All must be set.
type Options struct {
	// Schemas finds the schemas of kinds, Kinds the kinds of resources.
	Schemas resolver.SchemaResolver
	Kinds   meta.ResettableRESTMapper
	// Builtin reports whether the kinds of a group are built into the server: their
	// schemas do not change.
	Builtin func(group string) bool
}

// Controller maintains the status of policies. It is made by New. SchemaChanged may be called at
// any time, and Run again when it has returned.
type Controller struct {
	options Options
	checker Checker

	mu struct {
		sync.Mutex
		// run is nil while the controller does not run.
		run *run
		// again are policies to check although their generation was observed.
		again map[string]bool
		// stale is set when Kinds may not have the current kinds.
		stale bool
		// checked is when a policy was checked last. It has no deleted policies.
		checked map[string]time.Time
	}
}

// New returns a controller, which does nothing until Run.
func New(o Options) *Controller {
	return &Controller{options: o, checker: Checker{Schemas: o.Schemas, Kinds: o.Kinds}}
}

// run is the controller from a call of Run until its end.
type run struct {
	*Controller
	client clientv1.ValidatingAdmissionPolicyInterface
	store  cache.Store
	queue  workqueue.TypedRateLimitingInterface[string]
	// contexts belong to the goroutine that checks.
	contexts contexts
}

// Run works until ctx ends. The client reads policies and writes their status.
func (c *Controller) Run(ctx context.Context, client clientv1.ValidatingAdmissionPolicyInterface) {
	r := &run{Controller: c, client: client, queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry))}
	var informer cache.Controller
	r.store, informer = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return client.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return client.Watch(ctx, o)
			},
		},
		ObjectType: &admissionregistrationv1.ValidatingAdmissionPolicy{},
		Transform:  outline,
		Handler: cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(obj any, initial bool) {
				// A schema may have changed while this server did not run.
				r.changed(obj, initial)
			},
			UpdateFunc: func(_, obj any) { r.changed(obj, false) },
			DeleteFunc: c.deleted,
		},
	})
	c.mu.Lock()
	c.mu.run, c.mu.stale = r, true
	c.mu.again, c.mu.checked = map[string]bool{}, map[string]time.Time{}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.mu.run = nil
		c.mu.Unlock()
	}()
	var group sync.WaitGroup
	group.Go(func() { informer.RunWithContext(ctx) })
	group.Go(func() {
		defer utilruntime.HandleCrash()
		pace := rate.NewLimiter(perSecond, burst)
		for r.next(ctx) && pace.Wait(ctx) == nil {
			if r.queue.Len() == 0 {
				r.contexts = nil
			}
		}
	})
	<-ctx.Done()
	r.queue.ShutDown()
	group.Wait()
}

// SchemaChanged checks the policies again that may refer to kinds of a group. It does
// not block.
func (c *Controller) SchemaChanged(group string) {
	c.mu.Lock()
	r := c.mu.run
	c.mu.stale = true
	c.mu.Unlock()
	if r == nil {
		return
	}
	for _, obj := range r.store.List() {
		if policy := obj.(*admissionregistrationv1.ValidatingAdmissionPolicy); slices.Contains(groups(policy), group) {
			r.recheck(policy.Name)
		}
	}
}

func (r *run) recheck(name string) {
	r.mu.Lock()
	r.mu.again[name] = true
	r.mu.Unlock()
	r.queue.Add(name)
}

// outline keeps only the fields of a policy that the controller needs to decide whether to check
// it.
func outline(obj any) (any, error) {
	policy, ok := obj.(*admissionregistrationv1.ValidatingAdmissionPolicy)
	if !ok {
		return obj, nil
	}
	kept := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name, ResourceVersion: policy.ResourceVersion, Generation: policy.Generation},
		Spec:       admissionregistrationv1.ValidatingAdmissionPolicySpec{ParamKind: policy.Spec.ParamKind},
		Status:     admissionregistrationv1.ValidatingAdmissionPolicyStatus{ObservedGeneration: policy.Status.ObservedGeneration},
	}
	if policy.Spec.MatchConstraints != nil {
		rules := make([]admissionregistrationv1.NamedRuleWithOperations, len(policy.Spec.MatchConstraints.ResourceRules))
		for i, rule := range policy.Spec.MatchConstraints.ResourceRules {
			rules[i].APIGroups = rule.APIGroups
		}
		kept.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: rules}
	}
	return kept, nil
}

// groups returns the groups with the kinds against which a policy is checked.
func groups(policy *admissionregistrationv1.ValidatingAdmissionPolicy) []string {
	var list []string
	if kind := policy.Spec.ParamKind; kind != nil {
		list = append(list, schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind).Group)
	}
	if match := policy.Spec.MatchConstraints; match != nil {
		for _, rule := range match.ResourceRules {
			list = append(list, rule.APIGroups...)
		}
	}
	return list
}

func (r *run) changed(obj any, initial bool) {
	policy, ok := obj.(*admissionregistrationv1.ValidatingAdmissionPolicy)
	if !ok {
		return
	}
	custom := func(group string) bool { return group != "*" && !r.options.Builtin(group) }
	switch {
	case initial && slices.ContainsFunc(groups(policy), custom):
		r.recheck(policy.Name)
	case policy.Generation > policy.Status.ObservedGeneration:
		r.queue.Add(policy.Name)
	}
}

func (c *Controller) deleted(obj any) {
	name, err := cache.DeletionHandlingObjectToName(obj)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.again, name.Name)
	delete(c.mu.checked, name.Name)
}

func (r *run) next(ctx context.Context) bool {
	name, stop := r.queue.Get()
	if stop {
		return false
	}
	defer r.queue.Done(name)
	wait, again := r.due(name, time.Now())
	if wait > 0 {
		r.queue.AddAfter(name, wait)
		return true
	}
	attemptCtx, cancel := context.WithTimeoutCause(ctx, attempt, fmt.Errorf("not done within %s", attempt))
	defer cancel()
	err := r.check(attemptCtx, name, again)
	if err == nil {
		r.queue.Forget(name)
		return true
	}
	if ctx.Err() != nil {
		return true
	}
	klog.V(2).InfoS("Checking the types of a policy failed and is tried again", "policy", name, "err", errors.Join(err, context.Cause(attemptCtx)))
	if again {
		r.mu.Lock()
		r.mu.again[name] = true
		r.mu.Unlock()
	}
	r.queue.AddRateLimited(name)
	return true
}

// due returns how long the check of a policy has to wait. If it need not wait, due notes that
// the policy is checked now, and reports whether to check it again although its generation was
// observed.
func (c *Controller) due(name string, now time.Time) (wait time.Duration, again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, ok := c.mu.checked[name]; ok {
		if wait := last.Add(interval).Sub(now); wait > 0 {
			return wait, false
		}
	}
	again = c.mu.again[name]
	delete(c.mu.again, name)
	c.mu.checked[name] = now
	return 0, again
}

// check writes the status of one policy if it has changed.
func (r *run) check(ctx context.Context, name string, again bool) error {
	policy, err := r.client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		r.deleted(cache.DeletedFinalStateUnknown{Key: name})
		return nil
	}
	if err != nil {
		return err
	}
	observed := policy.Status.ObservedGeneration >= policy.Generation
	if observed && !again {
		return nil
	}
	r.mu.Lock()
	stale := r.mu.stale
	r.mu.stale = false
	r.mu.Unlock()
	if stale {
		r.options.Kinds.Reset()
		r.contexts = nil
	}
	warnings := r.contexts.of(&r.checker, policy, r.options.Builtin).warnings(policy)
	if observed && policy.Status.TypeChecking != nil && slices.Equal(policy.Status.TypeChecking.ExpressionWarnings, warnings) {
		return nil
	}
	checked := applyv1.TypeChecking()
	for _, w := range warnings {
		checked.WithExpressionWarnings(applyv1.ExpressionWarning().WithFieldRef(w.FieldRef).WithWarning(w.Warning))
	}
	status := applyv1.ValidatingAdmissionPolicyStatus().WithObservedGeneration(policy.Generation).WithTypeChecking(checked)
	_, err = r.client.ApplyStatus(ctx, applyv1.ValidatingAdmissionPolicy(name).WithStatus(status),
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
