package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"k8s.io/apiserver/pkg/server/healthz"
)

// The steps of the start that health checks show, under the names that
// kube-apiserver has for them. Probes and tests look for these.
const (
	bootNamespaces      = "start-system-namespaces-controller"
	bootServiceCIDR     = "start-kubernetes-service-cidr-controller"
	bootPriorityClasses = "scheduling/bootstrap-system-priority-classes"
	bootRoles           = "rbac/bootstrap-roles"
	bootCustomKinds     = "crd-informer-synced"
	bootService         = "bootstrap-controller"
	bootRegistered      = "kube-apiserver-autoregistration"
	bootAggregation     = "apiservice-registration-controller"
	bootAuthentication  = "start-cluster-authentication-info-controller"
)

// bootStep is something that is done once, when requests are served.
type bootStep struct {
	name string
	do   func(context.Context) error
	// lasting says that what the step starts goes on until the server ends.
	lasting bool
}

// boot is the start of a server in steps, each of which is a health check that fails
// until the step is done.
type boot struct {
	// inOrder are done one after the other, then the others all at once.
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

// run does all steps and returns the first error. ctx is that of the server.
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
