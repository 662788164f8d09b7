package server

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"k8s.io/apiserver/pkg/server/healthz"
)

// The parts of the start that health checks show, under the names that
// kube-apiserver has for them. Probes and tests look for these.
const (
	bootNamespaces      = "start-system-namespaces-controller"
	bootServiceCIDR     = "start-kubernetes-service-cidr-controller"
	bootPriorityClasses = "scheduling/bootstrap-system-priority-classes"
	bootRoles           = "rbac/bootstrap-roles"
	bootCustomKinds     = "crd-informer-synced"
	bootService         = "bootstrap-controller"
)

// boot is the start of a server in parts, each of which is a health check that
// fails until the part is done.
type boot struct {
	parts map[string]*atomic.Bool
	order []string
}

func newBoot(names ...string) *boot {
	b := &boot{parts: map[string]*atomic.Bool{}}
	for _, name := range names {
		b.parts[name] = &atomic.Bool{}
		b.order = append(b.order, name)
	}
	return b
}

// checks returns the health checks, one for each part.
func (b *boot) checks() []healthz.HealthChecker {
	var list []healthz.HealthChecker
	for _, name := range b.order {
		done := b.parts[name]
		list = append(list, healthz.NamedCheck("poststarthook/"+name, func(*http.Request) error {
			if !done.Load() {
				return errors.New("not finished")
			}
			return nil
		}))
	}
	return list
}

// do does a part. It panics when there is no part of that name.
func (b *boot) do(ctx context.Context, name string, part func(context.Context) error) error {
	done := b.parts[name]
	if done == nil {
		panic("server: the start has no part " + name)
	}
	if err := part(ctx); err != nil {
		return err
	}
	done.Store(true)
	return nil
}
