package dev

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

const (
	// trustWithin bounds the time in which a program that issues its own certificate writes its caBundle. It may listen
	// before.
	trustWithin = 5 * time.Second
	// trustPause is the delay before the second attempt; each further one is twice as long.
	trustPause = 100 * time.Millisecond
)

// settled returns the mistakes that ask finds. While certificates are not trusted, it asks again, at most for trustWithin.
func settled(ctx context.Context, ask func(context.Context) (found []string, untrusted bool)) []string {
	late := time.NewTimer(trustWithin)
	defer late.Stop()
	for pause := trustPause; ; pause *= 2 {
		found, untrusted := ask(ctx)
		if !untrusted {
			return found
		}
		select {
		case <-time.After(pause):
		case <-late.C:
			return found
		case <-ctx.Done():
			return nil
		}
	}
}

// mistakes returns common mistakes that can be detected before the first request, each as a sentence with the remedy.
// It detects them as a server would: it calls each webhook of the program with an object of the project, or with an
// object that has a name only, as a dry run. The webhook's decision does not matter. untrusted reports whether a caBundle
// does not trust the certificate.
func (s *session) mistakes(ctx context.Context) (found []string, untrusted bool) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	registrations, err := s.registrations(ctx)
	if err != nil {
		return nil, false
	}
	caller, err := call.New(call.Options{Breaker: call.BreakerOff, Resolver: call.ResolverFunc(func(_ context.Context, namespace, name string, _ int32) ([]string, error) {
		p := s.programOf(types.NamespacedName{Namespace: namespace, Name: name})
		if p == nil {
			return nil, fmt.Errorf("the service %s/%s has no program", namespace, name)
		}
		return []string{p.address()}, nil
	})})
	if err != nil {
		return nil, false
	}
	defer caller.Close()
	registered := snapshot.Compile(registrations)
	for _, source := range []registration.Source{registration.Mutating, registration.Validating} {
		for _, e := range registered.Entries(source) {
			at, err := call.Address(&e.ClientConfig)
			if err != nil {
				continue
			}
			i := slices.IndexFunc(s.programs, func(p *program) bool { return p.process != nil && p.gate.local(at.Hostname()) })
			if i < 0 {
				continue
			}
			body := s.question(e.Entry)
			if body == nil {
				continue
			}
			_, failure := caller.Call(ctx, &call.Invocation{Hook: e.Entry, Body: body, UID: asked, Mutating: source == registration.Mutating})
			if failure == nil {
				continue
			}
			untrusted = untrusted || distrusts(failure)
			if remedy := remedyOf(failure, s.programs[i].files); remedy != "" {
				found = append(found, fmt.Sprintf("%s: %v. %s", e.Entry, failure, remedy))
			}
		}
	}
	return found, untrusted
}

// distrusts reports whether a caBundle does not trust the certificate of a webhook.
func distrusts(e *call.Error) bool {
	return errors.As(e.Cause, new(x509.UnknownAuthorityError)) || errors.As(e.Cause, new(x509.CertificateInvalidError))
}

// registrations returns the registrations of the server or of a cluster.
func (s *session) registrations(ctx context.Context) (snapshot.Registrations, error) {
	if s.live != nil {
		return snapshot.Registrations{Objects: s.live.registered()}, nil
	}
	planner, err := s.stage.Planner(ctx)
	if err != nil {
		return snapshot.Registrations{}, err
	}
	return planner.Registrations, nil
}

// remedyOf returns the remedy for a webhook that failed; empty if the question may be the cause.
func remedyOf(e *call.Error, files string) string {
	serve := fmt.Sprintf("serve TLS with tls.crt and tls.key of %s", files)
	switch {
	case errors.Is(e.Cause, http.ErrSchemeMismatch), errors.As(e.Cause, new(tls.RecordHeaderError)):
		return "API servers call webhooks by HTTPS only: " + serve + "."
	case errors.As(e.Cause, new(x509.HostnameError)):
		return "The certificate is for other names: " + serve + ", which is for the service."
	case distrusts(e):
		return "The caBundle does not trust the certificate: " + serve + ", and have the program write no caBundle of its own."
	case e.Class == call.HTTPStatus && e.Code == http.StatusNotFound:
		return "Nothing is served at the path of the registration: serve the webhook there, or change the path of its clientConfig."
	case e.Class == call.HTTPStatus && e.Code == http.StatusMethodNotAllowed:
		return "Reviews are sent by POST: accept POST at the path."
	case e.Class == call.Answer:
		return "API servers refuse the answer: answer with an AdmissionReview in the apiVersion of the request, or change admissionReviewVersions."
	case e.Class == call.Invalid:
		return "API servers refuse the answer: copy request.uid into response.uid, and give a patch its patchType."
	}
	return ""
}

// asked is the name of the object, the user and the uid in the reviews for webhooks.
const asked = "gatehouse-dev"

// example returns an object of a kind without an object in the manifests. A pod has a container, which the API requires:
// programs may end without it.
func example(kind schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(kind)
	u.SetName(asked)
	if kind == podKind {
		u.Object["spec"] = map[string]any{"containers": []any{map[string]any{"name": asked, "image": "pause"}}}
	}
	return u
}

// podKind is the kind in the review for a webhook for every kind.
var podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

// question returns a review about an object of the kind of a webhook's first rule; nil for a webhook for no object, or
// without a supported review version.
func (s *session) question(hook *registration.Entry) *review.Body {
	version, known := review.Choose(hook.ReviewVersions)
	if !known || len(hook.Rules) == 0 {
		return nil
	}
	rule := hook.Rules[0]
	plural, subresource, _ := strings.Cut(rule.Resources[0], "/")
	operation := strings.Replace(rule.Operations[0], "*", "CREATE", 1)
	if operation == "CONNECT" || subresource != "" {
		return nil
	}
	var kind *offline.Kind
	kinds := offline.Builtin()
	if s.live == nil {
		kinds = s.stage.Kinds()
	}
	if resource, served := kinds.Served(rule.APIGroups[0], plural); served {
		if rule.APIVersions[0] != "*" {
			resource.Version = rule.APIVersions[0]
		}
		kind = kinds.At(resource)
	}
	if kind == nil {
		kind = kinds.Of(podKind)
	}
	about := example(kind.Kind)
	for _, u := range append(slices.Clone(s.project.objects), s.project.others...) {
		// A program may rely on fields that the schema of the kind requires.
		if u.GroupVersionKind() == kind.Kind && u.GetName() != "" {
			about = u.DeepCopy()
			break
		}
	}
	if kind.Namespaced && about.GetNamespace() == "" {
		about.SetNamespace(metav1.NamespaceDefault)
	}
	r := &review.Header{
		Kind: kind.Kind, RequestKind: kind.Kind, Resource: kind.Resource, RequestResource: kind.Resource,
		Namespace: about.GetNamespace(), Name: about.GetName(), Operation: operation, User: &user.DefaultInfo{Name: asked}, DryRun: true,
	}
	object, err := about.MarshalJSON()
	if err != nil {
		return nil
	}
	payload := &review.Payload{Object: object}
	switch operation {
	case "UPDATE":
		payload.OldObject = object
	case "DELETE":
		payload.Object, payload.OldObject = nil, object
	}
	return review.NewBody(version, r, payload)
}

// ends maps the last output of failing programs to a remedy.
var ends = []struct{ printed, sentence string }{
	{"KUBERNETES_SERVICE_HOST", "The program looks for the files of a pod, which are at their fixed place only in a mount namespace: have it read the kubeconfig of $KUBECONFIG."},
	{"LeaderElectionNamespace", "The program takes the namespace of its leader election from the files of a pod: turn leader election off, or name the namespace, by a flag or the configuration of the program."},
	{"address already in use", "Another process has a port of the program: end that process, or change the port, such as the port of metrics, by a flag of the program."},
	{"permission denied", "The program may not do something. If it listens on a port below 1024, have it listen on another one and name that with --webhook-port."},
}

// explainEnd reports the probable reason for the end of the program.
func (s *session) explainEnd(p *program) {
	printed := p.printed.String()
	for _, e := range ends {
		if strings.Contains(printed, e.printed) {
			s.Say("%s", e.sentence)
			return
		}
	}
}
