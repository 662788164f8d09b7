package controllers

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientv1 "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/gatehouse-dev/gatehouse/internal/kit/survive"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/election"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/lazyinformer"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/namespaces"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/encryption"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/quotas"
)

// Options are the inputs of Controllers. Selection, Election, Fences, FakeNodes, Rejections and
// Tokens may be left out. So may the fields of controllers that are not chosen.
type Options struct {
	// Selection is the value of --controllers; empty means Default.
	Selection []string
	// Loopback reaches the server itself, as a superuser.
	Loopback *restclient.Config
	// Informers are the informers of the server, which starts them between New and Run.
	Informers informers.SharedInformerFactory
	// RBAC reports whether the server decides by roles, and reads them.
	RBAC bool
	// Etcd holds the objects of a resource below Prefix(resource).
	Etcd   lazyinformer.Etcd
	Prefix lazyinformer.Prefix
	// Values decrypts stored objects; nil when nothing is encrypted.
	Values *encryption.Transformers
	// Custom reports whether the metadata of a resource's objects may be read from etcd: the
	// resource is custom and of this server, or the resource of CRDs.
	Custom func(schema.GroupResource) bool
	// Election decides when this server runs controllers; nil means always.
	Election *election.Election
	// Namespaces are the options of the controller that empties namespaces. A term sets its
	// clients and informers.
	Namespaces namespaces.Options
	// CheckTypes writes the type errors of expressions into the status of policies, until its
	// context ends.
	CheckTypes func(context.Context, clientv1.ValidatingAdmissionPolicyInterface)
	// RootCA returns the PEM certificates with which pods verify the server.
	RootCA func() []byte
	// CAFile and CAKeyFile are the CA that signs CertificateSigningRequests, as PEM files.
	CAFile, CAKeyFile string
	// Fences keep quotas exact while they are counted. With nil, quotas are counted as upstream
	// counts them.
	Fences *quotas.Fences
	// Rejections are the objects that initializers rejected.
	Rejections *Rejections
	// FakeNodes is how many nodes to play, in addition to the selected controllers; 0 means none.
	FakeNodes int
	// Tokens signs the tokens of ServiceAccounts that are kept in Secrets; nil for no such
	// tokens.
	Tokens serviceaccount.TokenGenerator
}

// Controllers are the chosen controllers. They are made by New and run once.
type Controllers struct {
	options Options
	rows    []row
	kinds   change
	root    change
	// shared are the informers of the server, for kinds that the server watches anyway.
	shared map[runtime.Object]cache.SharedIndexInformer
}

// New chooses the controllers and starts nothing. It returns the error of Check.
func New(o Options) (*Controllers, error) {
	if len(o.Selection) == 0 {
		o.Selection = Default()
	}
	if o.Rejections == nil {
		o.Rejections = NewRejections()
	}
	rows, err := choose(o.Selection, table)
	if err != nil {
		return nil, err
	}
	if o.FakeNodes > 0 {
		rows = append(rows, row{name: "fake nodes", account: "fake-nodes", make: fakeNodes})
	}
	c := &Controllers{options: o, rows: rows}
	if len(rows) > 0 {
		core, network := o.Informers.Core().V1(), o.Informers.Networking().V1()
		c.shared = map[runtime.Object]cache.SharedIndexInformer{
			&corev1.Namespace{}:         core.Namespaces().Informer(),
			&corev1.Service{}:           core.Services().Informer(),
			&networkingv1.ServiceCIDR{}: network.ServiceCIDRs().Informer(),
			&networkingv1.IPAddress{}:   network.IPAddresses().Informer(),
		}
		if o.RBAC {
			c.shared[&rbacv1.ClusterRole{}] = o.Informers.Rbac().V1().ClusterRoles().Informer()
		}
	}
	return c, nil
}

// KindsChanged tells the controllers that the served kinds have changed. It may be called at any
// time, and does not block.
func (c *Controllers) KindsChanged() { c.kinds.announce() }

// RootChanged restarts the controllers with the current RootCA. It may be called at any time.
func (c *Controllers) RootChanged() { c.root.announce() }

// Run runs the controllers until ctx ends, or, with an Election, whenever it is this
// server's turn. When Run returns, all work of the controllers has ended.
func (c *Controllers) Run(ctx context.Context) {
	switch {
	case len(c.rows) == 0:
	case c.options.Election == nil:
		c.terms(ctx)
	default:
		c.options.Election.Run(ctx, c.terms)
	}
}

// firstRetry and lastRetry bound how long a term waits before it retries the start of a controller.
const (
	firstRetry, lastRetry = 100 * time.Millisecond, 30 * time.Second
)

// terms runs the controllers until ctx ends, and restarts them when the RootCA changes: upstream's
// controllers read it when they are made.
func (c *Controllers) terms(ctx context.Context) {
	for ctx.Err() == nil {
		changed := c.root.await()
		now, end := context.WithCancel(ctx)
		go func() {
			select {
			case <-changed:
				end()
			case <-now.Done():
			}
		}()
		c.term(now)
		end()
	}
}

// term runs the controllers until ctx ends.
func (c *Controllers) term(ctx context.Context) {
	t, err := newTerm(ctx, c)
	if err != nil {
		// This is unlikely, because other clients of this server use the same configuration.
		klog.ErrorS(err, "No controller runs")
		<-ctx.Done()
		return
	}
	defer t.end()
	var running sync.WaitGroup
	defer running.Wait()
	defer utilruntime.HandleCrash()
	running.Go(func() { survive.Run(ctx, "kinds that controllers know", t.followKinds) })
	for _, r := range c.rows {
		if len(r.wakes) > 0 {
			running.Go(func() { survive.Run(ctx, r.name, func(ctx context.Context) { t.wakeAndRun(ctx, r) }) })
			continue
		}
		// The controllers are made in the order of the table.
		made, done := context.WithCancel(ctx)
		running.Go(func() {
			defer done()
			survive.Run(ctx, r.name, func(ctx context.Context) {
				if run := t.start(ctx, r); run != nil {
					done()
					run(ctx)
				}
			})
		})
		<-made.Done()
	}
}

// wakeAndRun waits until one of the resources of a controller has an object, and then runs the
// controller until ctx ends.
func (t *term) wakeAndRun(ctx context.Context, r row) {
	var prefixes []string
	for _, resource := range r.wakes {
		prefixes = append(prefixes, t.options.Prefix(resource))
	}
	for retry := firstRetry; ctx.Err() == nil; retry = min(2*retry, lastRetry) {
		err := lazyinformer.Await(ctx, t.options.Etcd, prefixes...)
		if err == nil {
			if run := t.start(ctx, r); run != nil {
				run(ctx)
			}
			return
		}
		if ctx.Err() == nil {
			klog.V(1).InfoS("Waiting for the objects of a controller", "controller", r.name, "err", err)
		}
		sleep(ctx, retry)
	}
}

// start makes a controller and starts the informers that it needs. It retries
// until ctx ends; nil means that there is nothing to run.
func (t *term) start(ctx context.Context, r row) func(context.Context) {
	for retry := firstRetry; ctx.Err() == nil; retry = min(2*retry, lastRetry) {
		run, err := t.make(ctx, r)
		if err == nil {
			return run
		}
		klog.ErrorS(err, "A controller cannot start, and is tried again", "controller", r.name, "after", retry)
		sleep(ctx, retry)
	}
	return nil
}

func (t *term) make(ctx context.Context, r row) (func(context.Context), error) {
	defer t.making.begin()()
	config := t.config(r.account)
	if r.counts {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return alike{paced{everything{next}, t.options.Rejections, cmp.Or(r.again, usual)}}
		})
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	named := func(ctx context.Context) context.Context {
		return klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), r.name))
	}
	run, err := r.make(named(ctx), t, client)
	if err != nil {
		return nil, err
	}
	t.startInformers()
	if run == nil {
		return nil, nil
	}
	return func(ctx context.Context) { run(named(ctx)) }, nil
}

// working returns a constructor for a controller: a function that takes a number of workers and
// returns the function that runs the controller, or the error why there is no controller.
func working[C interface{ Run(context.Context, int) }](c C, err error) func(workers int) (func(context.Context), error) {
	return func(workers int) (func(context.Context), error) {
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) { c.Run(ctx, workers) }, nil
	}
}

// running returns the function that runs a controller, or the error why there is no controller.
func running[C interface{ Run(context.Context) }](c C, err error) (func(context.Context), error) {
	if err != nil {
		return nil, err
	}
	return c.Run, nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// change lets goroutines wait for the next change. The zero value is ready.
type change struct {
	mu   sync.Mutex
	next chan struct{}
}

// await returns a channel that is closed by the next change.
func (c *change) await() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

func (c *change) announce() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}
