package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
	"github.com/gatehouse-dev/gatehouse/test/hooktest"
)

func init() {
	for _, a := range []hostile{
		{
			name: "patches-copies", about: "a webhook's patch copies the metadata into themselves, 14 times",
			answer: patch(func(b *strings.Builder) {
				for i := range 14 {
					fmt.Fprintf(b, `{"op":"copy","from":"/metadata","path":"/metadata/x%d"},`, i)
				}
			}),
		},
		{
			name: "patches-moves", about: "the patch of a webhook with failurePolicy Ignore moves elements of a list of a million, 4,000 times",
			answer: patch(func(b *strings.Builder) {
				fmt.Fprintf(b, `{"op":"add","path":"/list","value":[%s0]},`, strings.Repeat("0,", 999_999))
				for range 4000 {
					b.WriteString(`{"op":"move","from":"/list/0","path":"/list/999999"},`)
				}
			}),
			ignore: true,
		},
		{
			name: "patches-values", about: "a webhook's patch adds four million empty objects",
			answer: patch(func(b *strings.Builder) {
				fmt.Fprintf(b, `{"op":"add","path":"/list","value":[%s{}]},`, strings.Repeat("{},", 3_900_000))
			}),
		},
		{
			name: "answers-message", about: "a webhook rejects with a message of 15 MiB",
			answer: fmt.Sprintf(`"allowed":false,"status":{"message":%q}`, strings.Repeat("x", 15<<20)),
		},
		{
			name: "answers-annotations", about: "a webhook allows with audit annotations of 15 MiB",
			answer: fmt.Sprintf(`"allowed":true,"auditAnnotations":{"note":%q}`, strings.Repeat("x", 15<<20)),
		},
	} {
		register(attack{name: a.name, about: a.about, prepare: a.prepare, strike: a.strike})
	}
}

// patch returns the fields of a response that allows with a patch. write writes operations, each followed by a comma.
func patch(write func(*strings.Builder)) string {
	var b strings.Builder
	b.WriteByte('[')
	write(&b)
	operations := strings.TrimSuffix(b.String(), ",") + "]"
	return fmt.Sprintf(`"allowed":true,"patchType":"JSONPatch","patch":%q`, base64.StdEncoding.EncodeToString([]byte(operations)))
}

// hostile is a webhook whose answers harm the server that calls it. It is called for the attacker's objects only.
type hostile struct {
	name, about string
	// answer contains the fields of the response without its uid.
	answer string
	// ignore sets the failure policy Ignore.
	ignore bool
}

// prepare starts the webhook, and registers it for ConfigMaps with the label of the attacker.
func (h hostile) prepare(ctx context.Context, t *target) error {
	url, ca, err := h.serve(t)
	if err != nil {
		return err
	}
	policy, seconds, none := admissionv1.Fail, int32(10), admissionv1.SideEffectClassNone
	if h.ignore {
		policy = admissionv1.Ignore
	}
	_, err = t.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hostile"},
		Webhooks: []admissionv1.MutatingWebhook{{
			Name: "hostile.example.com", ClientConfig: admissionv1.WebhookClientConfig{URL: &url, CABundle: ca},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"of": attacker}},
			FailurePolicy:  &policy, TimeoutSeconds: &seconds, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	return err
}

// serve answers reviews until the server under attack is stopped.
func (h hostile) serve(t *target) (url string, ca []byte, err error) {
	listener, err := hooktest.Listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var sent struct {
			Request struct {
				UID string `json:"uid"`
			} `json:"request"`
		}
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		head := fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,`, sent.Request.UID)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", fmt.Sprint(len(head)+len(h.answer)+len("}}")))
		_, _ = bytes.NewReader([]byte(head)).WriteTo(w)
		_, _ = strings.NewReader(h.answer).WriteTo(w)
		_, _ = strings.NewReader("}}").WriteTo(w)
	}))
	if err != nil {
		return "", nil, err
	}
	t.atEnd(func() { _ = listener.Close() })
	return listener.URL + "/", listener.CA, nil
}

// crowd is the number of concurrent requests of a strike.
const crowd = 100

var objects atomic.Int64

// strike creates ConfigMaps that the webhook is called for.
func (h hostile) strike(ctx context.Context, t *target) error {
	return t.each(ctx, crowd, func(int) load.Request {
		return post("/api/v1/namespaces/default/configmaps", fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"attack-%d","labels":{"of":%q}},"data":{"key":"value"}}`, objects.Add(1), attacker))
	})
}
