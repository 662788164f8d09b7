package dependents_test

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/dependents"
)

func TestOfEncoded(t *testing.T) {
	const spec = `"spec":{"selector":{"matchLabels":{"app":"a"}},"template":{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}`
	for _, row := range []struct{ kind, data, want string }{
		{"apps/v1 Deployment", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},` + spec + `}`, "ReplicaSet of Deployment web, Pod of ReplicaSet web-"},
		{"apps/v1 DaemonSet", `{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"generateName":"web-"},` + spec + `}`, "Pod of DaemonSet web-b2c4d"},
		{"apps/v1 Deployment", `{"apiVersion":"v1","kind":"Status","message":"a patch"}`, ""},
		{"apps/v1 Deployment", ``, ""},
		{"apps/v1beta1 Deployment", `{"apiVersion":"apps/v1beta1","kind":"Deployment","metadata":{"name":"web"},` + spec + `}`, ""},
		{"v1 ConfigMap", `{"apiVersion":"v1","kind":"ConfigMap"}`, ""},
		{"apps/v1 Deployment", `{"apiVersion":"apps/v1","kind":"Deployment","spec":[]}`, "error"},
	} {
		version, kind, _ := strings.Cut(row.kind, " ")
		made, err := dependents.OfEncoded(schema.FromAPIVersionAndKind(version, kind), []byte(row.data))
		var got []string
		for i := range made {
			u, err := made[i].Unstructured()
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, u.GetKind()+" of "+made[i].Of)
			for _, field := range []string{`"status"`, `"uid":""`, `"creationTimestamp"`} {
				if data, _ := json.Marshal(u.Object); strings.Contains(string(data), field) {
					t.Errorf("%s: %s in %s", row.data, field, data)
				}
			}
			if u.GetUID() != "" {
				t.Errorf("%s has the UID %s", got[i], u.GetUID())
			}
		}
		if text := strings.Join(got, ", "); (err != nil) != (row.want == "error") || err == nil && !strings.HasPrefix(text, row.want) || row.want == "" && text != "" {
			t.Errorf("%s: got %q, %v, want %q", row.data, text, err, row.want)
		}
	}
}

// The server's defaults and admission change an object in place.
func TestObjectsShareNothing(t *testing.T) {
	data := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"selector":{"matchLabels":{"app":"a"}},"template":{"metadata":{"labels":{"app":"a"}},"spec":{"nodeSelector":{"a":"b"},"containers":[{"name":"c","image":"i"}]}}}}`
	made, err := dependents.OfEncoded(schema.FromAPIVersionAndKind("apps/v1", "Deployment"), []byte(data))
	if err != nil || len(made) != 2 {
		t.Fatalf("%d objects, %v", len(made), err)
	}
	encoded := func() (all []string) {
		for i := range made {
			u, err := made[i].Unstructured()
			if err != nil {
				t.Fatal(err)
			}
			if made[i].Object.GetLabels()["changed"] != "" {
				u.SetLabels(nil)
			}
			data, err := json.Marshal(u.Object)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(data))
		}
		return all
	}
	for i := range made {
		before := encoded()
		made[i].Object.GetLabels()["changed"] = "yes"
		after := encoded()
		for j := range made {
			if j != i && before[j] != after[j] {
				t.Errorf("a label of object %d is in object %d: %s", i, j, after[j])
			}
		}
		if strings.Contains(after[i], "changed") {
			t.Errorf("a label is in the template, too: %s", after[i])
		}
	}
}
