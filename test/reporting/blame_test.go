package reporting

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// blamed is a field in the output of gatehouse blame.
type blamed struct{ Path, By, ByKind, Now string }

// blameOf repeats gatehouse blame for an object until it prints the wanted fields: traces are stored shortly
// after the response.
func blameOf(t *testing.T, s *harness.Server, ns, object string, wanted ...blamed) {
	t.Helper()
	harness.Eventually(t, "the fields of "+object, func() error {
		r := harness.Run(t, "blame", object, "-o", "json", "--kubeconfig", s.Kubeconfig, "-n", ns)
		var b struct{ Changes []blamed }
		if err := json.Unmarshal([]byte(r.Out), &b); err != nil {
			return fmt.Errorf("%w in %s%s", err, r.Out, r.Err)
		}
		for _, w := range wanted {
			if !slices.Contains(b.Changes, w) {
				return fmt.Errorf("%+v is missing in %+v", w, b.Changes)
			}
		}
		if len(b.Changes) != len(wanted) {
			return fmt.Errorf("got %+v, want %+v", b.Changes, wanted)
		}
		return nil
	})
}

// Every field set during admission has an author: a built-in admission plugin, a policy, a webhook, or the
// active initializer (S9.18).
func TestBlame(t *testing.T) {
	t.Parallel()
	s := sole(t)
	admin := s.HTTP(t, nil)
	ns := s.Namespace(t)
	hooks := harness.NewWebhookServer(t, nil)
	note := hooks.Hook("/note", harness.Respond(map[string]any{"allowed": true, "patchType": "JSONPatch",
		"patch": []byte(`[{"op":"add","path":"/metadata/annotations","value":{"noted":"yes"}}]`)}))
	register(t, s, "v1", mutating, webhook("note", ns, note, rules(rule("CREATE", "/v1/pods")), `reinvocationPolicy: Never`))
	k := s.Kubectl(t, ns)
	k.MustWith(mutatingPolicy("team", ns, "", "pods", "Never", `  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'object.metadata.name == "web" && request.operation == "CREATE" ? Object{metadata: Object.metadata{labels: {"team": "red"}}} : Object{}'}
  - patchType: JSONPatch
    jsonPatch: {expression: 'request.operation == "CREATE" ? [JSONPatch{op: "add", path: "/spec/hostname", value: "web"}] : []'}
`), "apply", "-f", "-")
	pods := "/api/v1/namespaces/" + ns + "/pods"
	created := admin.Must(http.StatusAccepted, "POST", pods+including, `{"metadata":{"name":"web","initializers":{"pending":[{"name":"a.example.com"},{"name":"b.example.com"}]}},
		"spec":{"serviceAccountName":"default","automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]}}`)
	want(t, "pending", pending(created.Body), "a,b")
	// The first initializer writes twice, and then hands over to the second, which completes.
	for _, patch := range []string{
		`{"metadata":{"annotations":{"first":"1"}}}`,
		`{"metadata":{"annotations":{"second":"2"},"initializers":{"pending":[{"name":"b.example.com"}]}}}`,
		`{"spec":{"activeDeadlineSeconds":60},"metadata":{"initializers":null}}`,
	} {
		admin.Must(http.StatusOK, "PATCH", pods+"/web"+including, patch, "Content-Type", mergePatch)
	}
	const webhookName = "note.%[1]s/note.%[1]s.example.com"
	wanted := []blamed{
		{"/spec/preemptionPolicy", "Priority", "plugin", "same"},
		{"/spec/priority", "Priority", "plugin", "same"},
		{"/spec/tolerations", "DefaultTolerationSeconds", "plugin", "same"},
		{"/metadata/labels/team", "team", "policy", "same"},
		{"/spec/hostname", "team", "policy", "same"},
		{"/metadata/annotations", fmt.Sprintf(webhookName, ns), "webhook", "same"},
		{"/metadata/annotations/first", "a.example.com", "initializer", "same"},
		{"/metadata/annotations/second", "a.example.com", "initializer", "same"},
		{"/spec/activeDeadlineSeconds", "b.example.com", "initializer", "same"},
	}
	blameOf(t, s, ns, "pod/web", wanted...)
	r := harness.Run(t, "blame", "pod/web", "--kubeconfig", s.Kubeconfig, "-n", ns)
	said := strings.Join(strings.Fields(r.Out), " ")
	for _, text := range []string{`metadata.labels.team merged "red" policy team same`, `metadata.annotations.first + "1" initializer a.example.com same UPDATE by gatehouse-admin`} {
		if !strings.Contains(said, text) {
			t.Errorf("%q is not in\n%s", text, r.Out)
		}
	}
	// A trace shows the active initializer and its changes.
	list := admin.Get(tracesIn(ns) + "?fieldSelector=webhook=b.example.com,name=web,operation=UPDATE")
	if items := list.At("items").([]any); len(items) != 1 {
		t.Errorf("%d traces are of the turn of b.example.com, want 1", len(items))
	}
}

// Blame reports the changes of a patch: the smallest fields, before and after, with list elements identified
// by name, even if a webhook replaces a whole list (S5.32).
func TestBlameSaysWhatChanged(t *testing.T) {
	t.Parallel()
	s := sole(t)
	admin := s.HTTP(t, nil)
	ns := s.Namespace(t)
	hooks := harness.NewWebhookServer(t, nil)
	patch := func(operations string) harness.Answer {
		return harness.Respond(map[string]any{"allowed": true, "patchType": "JSONPatch", "patch": []byte(operations)})
	}
	whole := hooks.Hook("/whole", patch(`[{"op":"replace","path":"/spec/containers","value":[
		{"name":"proxy","image":"p"},{"name":"web","image":"registry/i","env":[{"name":"A","value":"1"},{"name":"LEVEL","value":"debug"}]}]}]`))
	register(t, s, "v1", mutating, webhook("a-whole", ns, whole, rules(rule("CREATE", "/v1/pods")), `reinvocationPolicy: Never`))
	part := hooks.Hook("/part", patch(`[{"op":"replace","path":"/spec/containers/1/env/1/value","value":"trace"},
		{"op":"remove","path":"/metadata/labels/team","field":"forged"}]`))
	register(t, s, "v1", mutating, webhook("b-part", ns, part, rules(rule("CREATE", "/v1/pods")), `reinvocationPolicy: Never`))
	admin.Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/pods", `{"metadata":{"name":"web","labels":{"team":"red","x":"y"}},
		"spec":{"serviceAccountName":"default","automountServiceAccountToken":false,"containers":[{"name":"web","image":"i","env":[{"name":"A","value":"1"}]}]}}`)
	type field struct {
		Field, Now    string
		Before, After any
	}
	var got []field
	harness.Eventually(t, "what the webhooks changed", func() error {
		r := harness.Run(t, "blame", "pod/web", "-o", "json", "--kubeconfig", s.Kubeconfig, "-n", ns)
		var b struct {
			Changes []struct {
				ByKind      string
				Differences []field
			}
		}
		if err := json.Unmarshal([]byte(r.Out), &b); err != nil {
			return fmt.Errorf("%w in %s%s", err, r.Out, r.Err)
		}
		got = nil
		for _, c := range b.Changes {
			if c.ByKind == "webhook" {
				got = append(got, c.Differences...)
			}
		}
		if len(got) == 0 {
			return fmt.Errorf("no difference in %s", r.Out)
		}
		return nil
	})
	for i := range got {
		if m, ok := got[i].After.(map[string]any); ok && m["image"] == "p" {
			got[i].After = "the proxy"
		}
	}
	// The defaults that the first webhook left out are set again, and are not a change.
	wanted := map[string]field{
		"spec.containers[name=proxy]":                     {After: "the proxy", Now: "same"},
		"spec.containers[name=web].image":                 {Before: "i", After: "registry/i", Now: "same"},
		"spec.containers[name=web].env[name=LEVEL]":       {After: map[string]any{"name": "LEVEL", "value": "debug"}, Now: "changed"},
		"spec.containers[name=web].env[name=LEVEL].value": {Before: "debug", After: "trace", Now: "same"},
		"metadata.labels.team":                            {Before: "red", Now: "same"},
	}
	for _, g := range got {
		w, ok := wanted[g.Field]
		w.Field = g.Field
		if !ok || !reflect.DeepEqual(g, w) {
			t.Errorf("got %+v, want %+v", g, w)
		}
		delete(wanted, g.Field)
	}
	for name := range wanted {
		t.Errorf("%s is missing in %+v", name, got)
	}
	r := harness.Run(t, "blame", "pod/web", "--kubeconfig", s.Kubeconfig, "-n", ns)
	said := strings.Join(strings.Fields(r.Out), " ")
	t.Log(r.Out)
	for _, text := range []string{
		`spec.containers[name=web].env[name=LEVEL].value "debug" -> "trace" b-part.` + ns,
		`metadata.labels.team - "red" b-part.` + ns,
		`spec.containers[name=web].env[name=LEVEL] + {"name":"LEVEL","value":"debug"} a-whole.` + ns,
	} {
		if !strings.Contains(said, text) {
			t.Errorf("%q is not in\n%s", text, r.Out)
		}
	}
}
