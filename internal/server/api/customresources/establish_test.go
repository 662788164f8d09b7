package customresources

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

// statuses has admission call f with each status of a CRD that is written.
func (e *env) statuses(f func(*apiextensions.CustomResourceDefinition) error) {
	e.admit.set(func(a admission.Attributes) error {
		if crd, ok := a.GetObject().(*apiextensions.CustomResourceDefinition); ok && a.GetSubresource() == "status" {
			return f(crd)
		}
		return nil
	})
}

func isTrue(crd *apiextensions.CustomResourceDefinition, kind apiextensions.CustomResourceDefinitionConditionType) bool {
	for _, c := range crd.Status.Conditions {
		if c.Type == kind {
			return c.Status == apiextensions.ConditionTrue
		}
	}
	return false
}

// A CRD is established in the write that accepts its names, and is served before that; if other
// servers must serve it first, it takes two writes.
func TestWritesUntilEstablished(t *testing.T) {
	served := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	for name, c := range map[string]struct {
		option func(*Options)
		writes int
	}{
		"one server": {func(*Options) {}, 1},
		"several": {func(o *Options) {
			o.EstablishDelay = func(context.Context) time.Duration { return time.Millisecond }
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, c.option)
			var mu sync.Mutex
			writes := 0
			e.statuses(func(crd *apiextensions.CustomResourceDefinition) error {
				mu.Lock()
				defer mu.Unlock()
				writes++
				if !isTrue(crd, apiextensions.Established) {
					return nil
				}
				endpoint, done := e.Lookup(served, "")
				if endpoint == nil {
					t.Error("the definition is established before it is served")
					return nil
				}
				done()
				return nil
			})
			crd := e.define(widgets)
			if c := apihelpers.FindCRDCondition(crd, apiextensionsv1.Established); c.Reason != "InitialNamesAccepted" || c.Message != "the initial names have been accepted" {
				t.Errorf("Established: %+v", c)
			}
			if c := apihelpers.FindCRDCondition(crd, apiextensionsv1.NamesAccepted); c.Status != apiextensionsv1.ConditionTrue || c.Reason != "NoConflicts" {
				t.Errorf("NamesAccepted: %+v", c)
			}
			mu.Lock()
			defer mu.Unlock()
			if writes != c.writes {
				t.Errorf("%d writes of the status, want %d", writes, c.writes)
			}
		})
	}
}

// A CRD whose names are not written as accepted is not served; it is as soon as they are.
func TestNamesThatAreNotWritten(t *testing.T) {
	e := newEnv(t)
	refused := make(chan struct{}, 100)
	e.statuses(func(*apiextensions.CustomResourceDefinition) error {
		refused <- struct{}{}
		return errors.New("not now")
	})
	e.create(widgets)
	<-refused
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	lookup := func() bool {
		endpoint, done := e.Lookup(widgets, "")
		if endpoint != nil {
			done()
		}
		return endpoint != nil
	}
	e.await(func() bool { return !lookup() })
	e.admit.set(nil)
	e.until("widgets.example.com", func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
	})
	if !lookup() {
		t.Error("the definition is established and not served")
	}
}

// Plugins that change objects see the whole CRD when a controller writes its status.
func TestAdmissionOfStatusesSeesTheSchemas(t *testing.T) {
	e := newEnv(t)
	var mu sync.Mutex
	seen, without := 0, 0
	e.admit.Lock()
	e.admit.mutate = func(a admission.Attributes) {
		crd, ok := a.GetObject().(*apiextensions.CustomResourceDefinition)
		if !ok || a.GetSubresource() != "status" {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		seen++
		if v := crd.Spec.Versions[0].Schema; v == nil || len(v.OpenAPIV3Schema.Properties) == 0 {
			without++
		}
	}
	e.admit.Unlock()
	e.define(widgets)
	mu.Lock()
	defer mu.Unlock()
	if seen == 0 || without != 0 {
		t.Errorf("%d writes of the status, %d without schemas", seen, without)
	}
}
