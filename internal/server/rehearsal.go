package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

// Rehearsal configures the evaluation of a request for a test. The server evaluates it like any
// other request, and stores nothing.
type Rehearsal struct {
	// Stored are objects that the request finds in place of the stored objects of the same names.
	Stored []Stored
	// Authorize makes the server check whether the user may make the request. Otherwise every user
	// may. Expressions that use the authorizer get the server's answer in both cases.
	Authorize bool
	// Connect makes the request a CONNECT, which cannot be a dry run. Admission evaluates it, and
	// nothing is connected.
	Connect bool
	// DryRun makes the request a dry run for webhooks and policies, too.
	DryRun bool
	// Answer, if set, answers a call of a webhook. With neither a response nor an error, the
	// webhook is called.
	Answer func(*registration.Entry, *http.Request) (*http.Response, error)
	// Saw, if set, is called with each evaluation of an expression, by several goroutines at the
	// same time.
	Saw func(*registration.Entry, *expression.Expression, *expression.Seen)
	// Registrations, if set, returns the registrations to use for the request in place of the
	// active ones.
	Registrations func(inForce *snapshot.Snapshot) *snapshot.Snapshot

	trace *trace.Trace
	// admitted is set when the request has passed authorization: its user may make the request.
	admitted atomic.Bool
	// passed is set when admission allowed the request, whatever happened after it. The server makes
	// no connection for a CONNECT.
	passed atomic.Bool

	mu struct {
		sync.Mutex
		annotations map[string]string
	}
}

// Stored is an object that is stored for one request only.
type Stored struct {
	Resource        schema.GroupResource
	Namespace, Name string
	// Object is in any version that the server can read. JSON, if set, has the object in place
	// of Object.
	Object *unstructured.Unstructured
	JSON   []byte
}

// Trace is the trace of admission.
func (r *Rehearsal) Trace() *trace.Trace { return r.trace }

// Passed reports whether admission allowed the request. The response may still be an error: for a
// subresource whose object does not exist, and for each CONNECT, because nothing is connected.
func (r *Rehearsal) Passed() bool { return r.passed.Load() }

// Connected reports whether admission allowed a CONNECT.
func (r *Rehearsal) Connected() bool { return r.Connect && r.Passed() }

// Authorized reports whether the user may make the request.
func (r *Rehearsal) Authorized() bool { return r.admitted.Load() }

// Annotations are the audit annotations of admission.
func (r *Rehearsal) Annotations() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.mu.annotations)
}

type rehearsalKey struct{}

func rehearsalOf(ctx context.Context) *Rehearsal {
	r, _ := ctx.Value(rehearsalKey{}).(*Rehearsal)
	return r
}

// rehearsing is a filter behind authorization. It records that the user of a rehearsal may make the
// request.
func (s *settings) rehearsing(next http.Handler) http.Handler {
	if !s.Rehearsals {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r := rehearsalOf(req.Context()); r != nil {
			r.admitted.Store(true)
		}
		next.ServeHTTP(w, req)
	})
}

// rehearsalAuthorizer allows every user the request of a Rehearsal without Authorize.
type rehearsalAuthorizer struct{ authorizer.Authorizer }

func (z rehearsalAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if r := rehearsalOf(ctx); r != nil && !r.Authorize && !r.admitted.Load() {
		return authorizer.DecisionAllow, "", nil
	}
	return z.Authorizer.Authorize(ctx, a)
}

// rehearsalChain is the admission chain. It marks the requests of rehearsals, and passes other
// requests on unchanged.
type rehearsalChain struct{ admission.Passes }

func (c rehearsalChain) Admit(ctx context.Context, a apiadmission.Attributes, o apiadmission.ObjectInterfaces) error {
	if r := rehearsalOf(ctx); r != nil {
		a = rehearsed{a, r}
	}
	return c.Passes.Admit(ctx, a, o)
}

var errNotConnected = errors.New("a rehearsal connects to nothing")

func (c rehearsalChain) Validate(ctx context.Context, a apiadmission.Attributes, o apiadmission.ObjectInterfaces) error {
	r := rehearsalOf(ctx)
	if r == nil {
		return c.Passes.Validate(ctx, a, o)
	}
	err := c.Passes.Validate(ctx, rehearsed{a, r}, o)
	r.passed.Store(err == nil)
	if err == nil && a.GetOperation() == apiadmission.Connect {
		return errNotConnected
	}
	return err
}

// rehearsed are the attributes of a rehearsal.
type rehearsed struct {
	apiadmission.Attributes
	rehearsal *Rehearsal
}

var _ admission.Rehearsed = rehearsed{}

func (a rehearsed) AddAnnotation(key, value string) error {
	return a.AddAnnotationWithLevel(key, value, audit.LevelMetadata)
}

func (a rehearsed) AddAnnotationWithLevel(key, value string, level audit.Level) error {
	err := a.Attributes.AddAnnotationWithLevel(key, value, level)
	if err == nil {
		r := a.rehearsal
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.mu.annotations == nil {
			r.mu.annotations = map[string]string{}
		}
		r.mu.annotations[key] = value
	}
	return err
}

// AsMade implements admission.Rehearsed.
func (a rehearsed) AsMade() apiadmission.Attributes {
	if a.rehearsal.DryRun {
		return a
	}
	return made{a}
}

// made presents the attributes of a rehearsal as attributes of a request that is not a dry run.
type made struct{ rehearsed }

func (a made) IsDryRun() bool { return false }

func (a made) GetOperationOptions() runtime.Object {
	options := a.Attributes.GetOperationOptions()
	if options == nil {
		return nil
	}
	options = options.DeepCopyObject()
	switch o := options.(type) {
	case *metav1.CreateOptions:
		o.DryRun = nil
	case *metav1.UpdateOptions:
		o.DryRun = nil
	case *metav1.PatchOptions:
		o.DryRun = nil
	case *metav1.DeleteOptions:
		o.DryRun = nil
	}
	return options
}

// rehearsalSnapshots has the registrations of a rehearsal in place of the active ones.
type rehearsalSnapshots struct{ admission.Snapshots }

func (s rehearsalSnapshots) Acquire(ctx context.Context, subject snapshot.Subject) (*snapshot.Snapshot, error) {
	found, err := s.Snapshots.Acquire(ctx, subject)
	if r := rehearsalOf(ctx); err == nil && r != nil && r.Registrations != nil {
		found = r.Registrations(found)
	}
	return found, err
}

// rehearsalWitness passes the evaluations of an entry's expressions to the rehearsals that ask for
// them.
type rehearsalWitness struct{ entry *registration.Entry }

func (w rehearsalWitness) Wants(ctx context.Context) bool {
	r := rehearsalOf(ctx)
	return r != nil && r.Saw != nil
}

func (w rehearsalWitness) Saw(ctx context.Context, e *expression.Expression, seen *expression.Seen) {
	rehearsalOf(ctx).Saw(w.entry, e, seen)
}

// rehearsalCalls lets Rehearsal.Answer answer the calls of webhooks.
type rehearsalCalls struct{ http.RoundTripper }

func (c rehearsalCalls) RoundTrip(req *http.Request) (*http.Response, error) {
	if r := rehearsalOf(req.Context()); r != nil && r.Answer != nil {
		if hook := call.HookOf(req); hook != nil {
			if answer, err := r.Answer(hook, req); answer != nil || err != nil {
				return answer, err
			}
		}
	}
	return c.RoundTripper.RoundTrip(req)
}

// anywhere resolves services without endpoints to their names in a rehearsal with an Answer,
// which may answer for them.
func anywhere(inner call.Resolver) call.Resolver {
	return call.ResolverFunc(func(ctx context.Context, namespace, name string, port int32) ([]string, error) {
		found, err := inner.Resolve(ctx, namespace, name, port)
		if r := rehearsalOf(ctx); r != nil && r.Answer != nil && (err != nil || len(found) == 0) {
			return []string{net.JoinHostPort(fmt.Sprintf("%s.%s.svc", name, namespace), strconv.Itoa(int(port)))}, nil
		}
		return found, err
	})
}

// storedFor finds the object that a rehearsal has in place of the stored one.
func storedFor(ctx context.Context, resource schema.GroupResource, name string, codec runtime.Codec, into runtime.Object) (bool, error) {
	r := rehearsalOf(ctx)
	if r == nil {
		return false, nil
	}
	for i := range r.Stored {
		s := &r.Stored[i]
		path := s.Name
		if s.Namespace != "" {
			path = s.Namespace + "/" + s.Name
		}
		if s.Resource != resource || path != name {
			continue
		}
		data := s.JSON
		if data == nil {
			var err error
			if data, err = json.Marshal(s.Object.Object); err != nil {
				return false, err
			}
		}
		if err := runtime.DecodeInto(codec, data, into); err != nil {
			return false, fmt.Errorf("the object that is stored for a test: %w", err)
		}
		object, err := meta.Accessor(into)
		if err != nil {
			return false, err
		}
		revision, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
		if err != nil || revision == 0 {
			revision = 1
		}
		return true, apistorage.APIObjectVersioner{}.UpdateObject(into, revision)
	}
	return false, nil
}
