package harness

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// ConvertColor is a conversion webhook that renames color in v1 to colour in v2.
func ConvertColor(w http.ResponseWriter, r *Review) {
	objects := []any{}
	for _, o := range r.Request("objects").([]any) {
		object := o.(map[string]any)
		object["apiVersion"] = r.Text("desiredAPIVersion")
		from, to := "color", "colour"
		if object["apiVersion"] == "paint.example.com/v1" {
			from, to = to, from
		}
		if v, ok := object[from]; ok {
			delete(object, from)
			object[to] = v
		}
		objects = append(objects, object)
	}
	Respond(map[string]any{"convertedObjects": objects, "result": map[string]any{"status": "Success"}})(w, r)
}

func Configuration(kind, name string, webhooks ...any) string {
	return AsJSON(map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
		"metadata": map[string]any{"name": name}, "webhooks": webhooks})
}

const RegistrationGroup = "/apis/admissionregistration.k8s.io/"

const (
	Mutating   = "MutatingWebhookConfiguration"
	Validating = "ValidatingWebhookConfiguration"
)

// RegistrationsPath returns the path of the webhook configurations of a kind.
func RegistrationsPath(version, kind string) string {
	return "/apis/admissionregistration.k8s.io/" + version + "/" + strings.ToLower(kind) + "s"
}

// Register creates a webhook configuration and deletes it at the end of the test. The name is derived from
// the first webhook of the configuration.
func Register(t *testing.T, s *Server, version, kind string, webhooks ...map[string]any) string {
	t.Helper()
	name := strings.TrimSuffix(fmt.Sprint(webhooks[0]["name"]), ".example.com")
	RegisterAs(t, s, version, kind, name, webhooks...)
	return name
}

// RegisterAs is Register with a given name.
func RegisterAs(t *testing.T, s *Server, version, kind, name string, webhooks ...map[string]any) {
	t.Helper()
	field := "webhooks"
	if version == "v1alpha1" {
		field = "externalAdmissionHooks"
	}
	h := s.HTTP(t, nil)
	h.Must(http.StatusCreated, "POST", RegistrationsPath(version, kind), AsJSON(map[string]any{
		"apiVersion": "admissionregistration.k8s.io/" + version, "kind": kind,
		"metadata": map[string]any{"name": name}, field: webhooks,
	}))
	t.Cleanup(func() {
		if code, err := h.Try(context.Background(), "DELETE", RegistrationsPath(version, kind)+"/"+name, ""); err != nil || code != http.StatusOK && code != http.StatusNotFound {
			t.Errorf("unregistering %s: %d, %v", name, code, err)
		}
	})
}

// Webhook returns an entry of a webhook configuration. By default it matches all operations on the configmaps
// of the namespace; lines of YAML override fields.
func Webhook(name, namespace string, hook *Hook, lines ...string) map[string]any {
	w := map[string]any{
		"name":                    name + "." + namespace + ".example.com",
		"clientConfig":            hook.ClientConfig(),
		"rules":                   []any{Rule("*", "/v1/configmaps")},
		"namespaceSelector":       map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": namespace}},
		"failurePolicy":           "Fail",
		"sideEffects":             "None",
		"timeoutSeconds":          10,
		"admissionReviewVersions": []any{"v1", "v1beta1"},
	}
	SetFields(w, lines...)
	return w
}

// SetFields sets fields given as YAML.
func SetFields(w map[string]any, lines ...string) {
	for _, line := range lines {
		fields := map[string]any{}
		if err := yaml.Unmarshal([]byte(line), &fields); err != nil {
			panic(fmt.Sprintf("%v in %s", err, line))
		}
		maps.Copy(w, fields)
	}
}

// Rule returns a rule for resources of the form GROUP/VERSION/RESOURCE.
func Rule(operation string, resources ...string) map[string]any {
	var group, version string
	var list []any
	for _, r := range resources {
		parts := strings.SplitN(r, "/", 3)
		group, version = parts[0], parts[1]
		list = append(list, parts[2])
	}
	var operations []any
	for o := range strings.SplitSeq(operation, ",") {
		operations = append(operations, o)
	}
	return map[string]any{"operations": operations, "apiGroups": []any{group}, "apiVersions": []any{version}, "resources": list}
}

// Rules returns the line of Webhook that sets rules.
func Rules(list ...map[string]any) string { return AsJSON(map[string]any{"rules": list}) }
