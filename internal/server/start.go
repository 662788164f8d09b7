package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/gatehouse-dev/gatehouse/internal/kit/survive"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/aggregation"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/stores"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/bootstrap"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/backup"
)

// assembly is the last phase: a server with all its parts in place, not yet serving.
type assembly struct {
	*controlled
	// boot are the steps of the start, and objects creates later the objects that the API
	// refused during the start.
	boot    *boot
	objects *bootstrap.Objects
	// running are parts that run until the server ends, and whenReady parts that run from when the
	// server is ready until the server ends.
	running, whenReady []part
}

// part is a part of the server that neither stores nor admits objects, so that a panic ends only
// the part.
type part struct {
	name string
	run  func(context.Context)
}

// newAssembly lists the steps of the start, and the functions that run after it.
func newAssembly(c *controlled) (*assembly, error) {
	c.serving.handler = c.generic.Handler
	objects := &bootstrap.Objects{Client: c.loopback.client, ServiceRange: c.settings.ServiceClusterIPRange, MakeAccount: c.admitter.makeAccount}
	callers := aggregation.Callers{ClientCA: c.serving.clientCA, Proxies: c.serving.proxies}
	a := &assembly{
		controlled: c, objects: objects,
		boot: newBoot([]bootStep{
			// Later steps need these objects.
			{name: bootNamespaces, do: objects.OrLater(objects.Namespaces)},
			{name: bootServiceCIDR, do: objects.OrLater(objects.ServiceCIDR)},
			{name: bootPriorityClasses, do: objects.OrLater(objects.PriorityClasses)},
		}, slices.Concat([]bootStep{
			// No other step needs the following steps.
			{name: bootRoles, do: objects.OrLater(objects.Roles)},
			{name: bootCustomKinds, do: c.api.custom.Ready},
			{name: bootService, do: objects.OrLater(c.publisher.Start)},
			{name: bootRegistered, do: objects.OrLater(func(ctx context.Context) error { return c.api.aggregator.Register(ctx, c.loopback.config) })},
			{name: bootAggregation, do: c.api.aggregator.Know, lasting: true},
			{name: bootAuthentication, lasting: true, do: func(ctx context.Context) error { return callers.Publish(ctx, c.loopback.client) }},
		}, hookSteps(c.hooks, c.loopback))),
		running: []part{{"service kubernetes", c.publisher.Run}, {"events", c.admitter.rejections.Run}, {"expirations of certificates", c.warnOfExpirations}},
		whenReady: []part{
			{"controllers", c.controllers.Run},
			{"aggregation: start", c.api.aggregator.Run},
			// The client certificate for aggregated servers is read again.
			{"aggregation: certificate", func(ctx context.Context) { c.serving.toAggregated.Run(ctx, 1) }},
		},
	}
	if c.settings.fair() {
		known := c.loopback.informers
		a.boot.add(bootStep{name: bootFairness, do: objects.OrLater(func(ctx context.Context) error { return objects.Fairness(ctx, known) })})
		a.whenReady = append(a.whenReady, part{"default priority levels", func(ctx context.Context) { objects.KeepFairness(ctx, known) }})
	}
	if s := c.settings; s.EncryptionProviderConfigAutomaticReload || !s.sharesEtcd() && s.EncryptionProviderConfig == "" {
		a.running = append(a.running, part{"encryption configuration", c.followEncryption})
	}
	if s := c.settings; s.member != nil && s.PeerCertFile == "" {
		a.running = append(a.running, part{"certificate of the member", s.renewPeers})
	}
	if c.settings.member != nil {
		a.running = append(a.running, part{"keys of the cluster", c.followRotation})
	}
	if times := c.settings.backups; times != nil {
		s := c.settings
		scheduled := &backup.Schedule{
			Source: backup.Source{Client: c.db.client.Client, DataDir: s.DataDir, Version: s.ProgramVersion},
			Times:  times, Dir: s.BackupDir, Keep: s.BackupKeep, Reserve: max(s.MinFreeDisk, 0),
		}
		a.whenReady = append(a.whenReady, part{"scheduled backups", scheduled.Run})
	}
	return a, c.generic.AddBootSequenceHealthChecks(a.boot.checks()...)
}

// hookSteps are the steps of the start from the hooks of built-in kinds.
func hookSteps(hooks []stores.Hook, self *loopback) []bootStep {
	var steps []bootStep
	for _, hook := range hooks {
		steps = append(steps, bootStep{name: hook.Name, lasting: true, do: func(ctx context.Context) error {
			err := survive.Begin(ctx, hook.Name, func(ctx context.Context) error {
				return hook.Run(genericapiserver.PostStartHookContext{LoopbackClientConfig: self.config, Context: ctx})
			})
			if err != nil {
				return fmt.Errorf("starting %s: %w", hook.Name, err)
			}
			return nil
		}})
	}
	return steps
}

// These are the steps of the start that health checks show, under kube-apiserver's names. Probes
// and tests look for them.
const (
	bootNamespaces      = "start-system-namespaces-controller"
	bootServiceCIDR     = "start-kubernetes-service-cidr-controller"
	bootPriorityClasses = "scheduling/bootstrap-system-priority-classes"
	bootRoles           = "rbac/bootstrap-roles"
	bootCustomKinds     = "crd-informer-synced"
	bootService         = "bootstrap-controller"
	bootRegistered      = "kube-apiserver-autoregistration"
	bootAggregation     = "apiservice-registration-controller"
	bootFairness        = "priority-and-fairness-config-producer"
	bootAuthentication  = "start-cluster-authentication-info-controller"
)

// bootStep is a step of the start. It is done once, when requests are served.
type bootStep struct {
	name string
	do   func(context.Context) error
	// lasting means that the step starts work that continues until the server ends.
	lasting bool
}

// boot is the start of a server in steps. Each step has a health check that fails until the
// step is done.
type boot struct {
	// The steps of inOrder run one after the other, then the steps of atOnce in parallel.
	inOrder, atOnce []bootStep
	done            map[string]*atomic.Bool
}

func newBoot(inOrder, atOnce []bootStep) *boot {
	b := &boot{inOrder: inOrder, atOnce: atOnce, done: map[string]*atomic.Bool{}}
	for _, s := range slices.Concat(inOrder, atOnce) {
		b.done[s.name] = &atomic.Bool{}
	}
	return b
}

// add adds a step that no other step needs.
func (b *boot) add(s bootStep) {
	b.atOnce = append(b.atOnce, s)
	b.done[s.name] = &atomic.Bool{}
}

// checks returns the health checks, one for each step.
func (b *boot) checks() []healthz.HealthChecker {
	var list []healthz.HealthChecker
	for _, s := range slices.Concat(b.inOrder, b.atOnce) {
		done := b.done[s.name]
		list = append(list, healthz.NamedCheck("poststarthook/"+s.name, func(*http.Request) error {
			if !done.Load() {
				return errors.New("not finished")
			}
			return nil
		}))
	}
	return list
}

// run runs all steps and returns the first error. ctx is the context of the server.
func (b *boot) run(ctx context.Context) error {
	for _, s := range b.inOrder {
		if err := b.step(ctx, s); err != nil {
			return err
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, s := range b.atOnce {
		group.Go(func() error {
			if s.lasting {
				return b.step(ctx, s)
			}
			return b.step(groupCtx, s)
		})
	}
	return group.Wait()
}

func (b *boot) step(ctx context.Context, s bootStep) error {
	if err := s.do(ctx); err != nil {
		return err
	}
	b.done[s.name].Store(true)
	return nil
}
