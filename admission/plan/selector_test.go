package plan

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	v1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// FuzzSelectors: S2.1, S2.2, S2.10 to S2.19. For all selectors of a webhook and labels of the
// namespace and of the objects, Decide finds the same as the documentation of label selectors,
// taken literally, and as k8s.io/apimachinery; typed objects give the same result. A selector that
// is accepted in a webhook configuration compiles (S1.22).
func FuzzSelectors(f *testing.F) {
	for _, selector := range []string{
		`{}`, `null`, `{"matchLabels":{"team":"red"}}`, `{"matchLabels":{"":"red"}}`, `{"matchLabels":{"team":"-"}}`,
		`{"matchExpressions":[{"key":"team","operator":"In","values":["red","blue"]}]}`,
		`{"matchExpressions":[{"key":"runlevel","operator":"NotIn","values":["0","1"]}]}`,
		`{"matchExpressions":[{"key":"team","operator":"Exists"}],"matchLabels":{"a.b/c":""}}`,
		`{"matchExpressions":[{"key":"team","operator":"DoesNotExist"}]}`,
		`{"matchExpressions":[{"key":"team","operator":"Exists","values":["red"]}]}`,
		`{"matchExpressions":[{"key":"team","operator":"In"},{"key":"team","operator":"Like"}]}`,
	} {
		for _, metadata := range []string{`{"labels":{"team":"red","runlevel":"0"}}`, `{"labels":{"team":5,"a.b/c":""}}`, `{}`, `{"labels":[]}`, `7`, `null`} {
			f.Add([]byte(selector), []byte(`{}`), []byte(`{}`), []byte(metadata), []byte(`null`))
			f.Add([]byte(`{"matchLabels":{"team":"red"}}`), []byte(selector), []byte(`{"team":"red"}`), []byte(`null`), []byte(metadata))
		}
	}
	f.Fuzz(func(t *testing.T, namespaceSelector, objectSelector, namespaceLabels, object, old []byte) {
		var namespaces, objects *metav1.LabelSelector
		var found map[string]string
		var metadata, oldMetadata any
		for _, part := range []struct {
			data []byte
			into any
		}{{namespaceSelector, &namespaces}, {objectSelector, &objects}, {namespaceLabels, &found}, {object, &metadata}, {old, &oldMetadata}} {
			if json.Unmarshal(part.data, part.into) != nil {
				return
			}
		}
		req := &Request{Operation: admission.Update, Resource: pods, Kind: podKind, Namespace: "shop", Name: "web"}
		s := step(t, req, func(w *v1.ValidatingWebhook) { w.NamespaceSelector, w.ObjectSelector = namespaces, objects })
		decide := func(in given) Decision {
			in.NamespaceLabels = func(context.Context, string) (map[string]string, error) { return found, nil }
			return s.Decide(t.Context(), req, in.input())
		}

		inNamespace, errNamespace := literally(t, namespaces, found)
		var inObject bool
		var errObject error
		for _, m := range []any{metadata, oldMetadata} {
			// An empty selector needs no object (S2.18).
			if in, err := literally(t, objects, labelsIn(m)); err != nil || objects != nil && len(objects.MatchLabels)+len(objects.MatchExpressions) == 0 {
				inObject, errObject = err == nil, err
			} else if m != nil {
				inObject = inObject || in
			}
		}
		want, code := true, None
		switch {
		case errNamespace == nil && !inNamespace:
			want, code = false, NamespaceNotSelected
		case errObject == nil && !inObject:
			want, code = false, ObjectNotSelected
		}
		failed := want && (errNamespace != nil || errObject != nil)
		check := func(how string, got Decision) {
			if failed != (got.Err != nil) || got.Applies != (want && !failed) || got.Err == nil && got.Reason.Code != code {
				t.Errorf("%s: %+v, want applies %v, error %v, reason %v", how, got, want && !failed, failed, code)
			}
			if !got.Applies && got.Err == nil && got.Reason.String() == "" {
				t.Errorf("%s: no reason", how)
			}
		}
		in := given{}
		if metadata != nil {
			in.Object = &unstructured.Unstructured{Object: map[string]any{"metadata": metadata}}
		}
		if oldMetadata != nil {
			in.OldObject = &unstructured.Unstructured{Object: map[string]any{"metadata": oldMetadata}}
		}
		check("unstructured", decide(in))
		if metadata != nil {
			in.Object = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labelsIn(metadata)}}
		}
		if oldMetadata != nil {
			in.OldObject = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labelsIn(oldMetadata)}}
		}
		check("typed", decide(in))

		if accepted(namespaces) && errNamespace != nil || accepted(objects) && errObject != nil {
			t.Errorf("accepted at registration: %v, %v", errNamespace, errObject)
		}
	})
}

// labelsIn returns the labels in an object's metadata, without values that are not strings.
func labelsIn(metadata any) map[string]string {
	m, _ := metadata.(map[string]any)
	all, _ := m["labels"].(map[string]any)
	out := map[string]string{}
	for k, v := range all {
		if s, ok := v.(string); ok {
			out[k] = s
		}
	}
	return out
}

// literally evaluates a selector according to its documentation, and compares the result with
// k8s.io/apimachinery, whose error it returns.
func literally(t *testing.T, s *metav1.LabelSelector, l map[string]string) (bool, error) {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return false, err
	}
	selects := s != nil
	if s != nil {
		for k, v := range s.MatchLabels {
			got, has := l[k]
			selects = selects && has && got == v
		}
		for _, r := range s.MatchExpressions {
			got, has := l[r.Key]
			selects = selects && map[metav1.LabelSelectorOperator]bool{
				metav1.LabelSelectorOpIn:           has && slices.Contains(r.Values, got),
				metav1.LabelSelectorOpNotIn:        !has || !slices.Contains(r.Values, got),
				metav1.LabelSelectorOpExists:       has,
				metav1.LabelSelectorOpDoesNotExist: !has,
			}[r.Operator]
		}
	}
	if selects != selector.Matches(labels.Set(l)) {
		t.Fatalf("the library has another opinion of %s and %v", selector, l)
	}
	return selects, nil
}

// accepted reports whether a webhook with the selector is valid.
func accepted(s *metav1.LabelSelector) bool {
	if s == nil {
		return false
	}
	url, none := "https://127.0.0.1/", v1.SideEffectClassNone
	c := &v1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Webhooks: []v1.ValidatingWebhook{{
		Name: "h.example.com", ClientConfig: v1.WebhookClientConfig{URL: &url}, SideEffects: &none,
		AdmissionReviewVersions: []string{"v1"}, NamespaceSelector: s, ObjectSelector: s,
	}}}
	registration.Default(c)
	return len(registration.Validate(c)) == 0
}
