package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/kit/aliases"
	"github.com/gatehouse-dev/gatehouse/internal/readers/view"
)

// explanation is the API's AdmissionExplanation of a request.
type explanation struct {
	Status struct {
		Plan  *plan.Plan `json:"plan"`
		Error *struct {
			Message string `json:"message"`
		} `json:"error"`
		Tried []view.Tried `json:"tried"`
	} `json:"status"`
}

// explain requests an AdmissionExplanation.
func (v *viewer) explain(spec map[string]any) (*explanation, error) {
	body, err := json.Marshal(map[string]any{"apiVersion": group + "/" + version, "kind": "AdmissionExplanation", "spec": spec})
	if err != nil {
		return nil, err
	}
	e := &explanation{}
	if err = v.ask(http.MethodPost, inside(group, version, "", "admissionexplanations"), body, e); err != nil && codeOf(err) == http.StatusNotFound {
		err = &refused{http.StatusNotImplemented, "This needs Gatehouse: the server explains nothing. gatehouse explain -f FILE makes the plan on your machine, for any cluster."}
	}
	return e, err
}

// mayExplain returns an error if the viewer is not allowed to request explanations.
func (v *viewer) mayExplain() error {
	var review struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	body := fmt.Sprintf(`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"create","group":%q,"resource":"admissionexplanations"}}}`, group)
	if err := v.ask(http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", []byte(body), &review); err != nil {
		return err
	}
	if !review.Status.Allowed {
		return &refused{http.StatusForbidden, "you may not create admissionexplanations." + group}
	}
	return nil
}

// viewExplanation draws the explanations of requests with the objects of a manifest.
func viewExplanation(v *viewer, asked []byte) (any, error) {
	var wanted struct {
		Manifest  string `json:"manifest"`
		Policy    string `json:"policy"`
		Operation string `json:"operation"`
		// User and Groups make the requests; an empty User means the viewer.
		User   string   `json:"user"`
		Groups []string `json:"groups"`
		All    bool     `json:"all"`
	}
	// Parsing costs time, so texts of viewers without the right are not parsed.
	if err := v.mayExplain(); err != nil {
		return nil, err
	}
	if err := decode(asked, &wanted); err != nil {
		return nil, err
	}
	objects, err := readObjects(wanted.Manifest)
	if err != nil {
		return nil, fmt.Errorf("the manifest: %w", err)
	}
	if len(objects) == 0 {
		return nil, &refused{http.StatusBadRequest, "the manifest has no object"}
	}
	registrations, err := readObjects(wanted.Policy)
	if err != nil {
		return nil, fmt.Errorf("policies and webhooks to try: %w", err)
	}
	d := &drawing{}
	var list []view.Explained
	for _, content := range objects {
		object := &unstructured.Unstructured{Object: content}
		r, err := v.resourceOf(object.GetAPIVersion(), object.GetKind())
		if err != nil {
			return nil, err
		}
		spec := map[string]any{"operation": wanted.Operation, "resource": r.GroupVersionResource, "all": wanted.All}
		namespace := ""
		if r.namespaced {
			if namespace = object.GetNamespace(); namespace == "" {
				namespace = "default"
			}
			spec["namespace"] = namespace
		}
		if wanted.Operation != "CREATE" {
			spec["name"] = object.GetName()
		}
		if wanted.Operation != "DELETE" {
			spec["object"] = content
		}
		if wanted.User != "" {
			spec["user"], spec["groups"] = wanted.User, wanted.Groups
		}
		if len(registrations) > 0 {
			spec["registrations"] = registrations
		}
		e, err := v.explain(spec)
		if err != nil {
			return nil, err
		}
		if len(registrations) > 0 && e.Status.Tried == nil {
			d.Notes = []string{"The server is too old to try unregistered policies and webhooks: the plan leaves them out."}
		}
		list = append(list, e.explained(strings.Join(strings.Fields(wanted.Operation+" "+r.Resource+" "+namespace+" "+object.GetName()), " ")))
	}
	d.view = view.OfPlans(list, links)
	return d, nil
}

// explained converts the explanation of a request for package view.
func (e *explanation) explained(request string) view.Explained {
	one := view.Explained{Asked: request, Plan: e.Status.Plan, All: true, Tried: e.Status.Tried}
	if e.Status.Error != nil {
		one.Error = e.Status.Error.Message
	}
	return one
}

// maxObjects bounds the objects and the documents of a text.
const maxObjects = 100

// readObjects reads the objects of a text in YAML or JSON.
func readObjects(text string) ([]map[string]any, error) {
	wrong := func(format string, args ...any) error {
		return &refused{http.StatusBadRequest, fmt.Sprintf(format, args...)}
	}
	text = "\n" + strings.ReplaceAll(text, "\r\n", "\n")
	if n := strings.Count(text, "\n---"); n > maxObjects {
		return nil, wrong("the text has %d documents, more than %d", n, maxObjects)
	}
	objects := []map[string]any{}
	for i, document := range strings.Split(text, "\n---") {
		var content map[string]any
		err := aliases.Check([]byte(document), maxAsked)
		if err == nil {
			err = yaml.Unmarshal([]byte(document), &content)
		}
		if err != nil {
			return nil, wrong("document %d cannot be read: %v", i+1, err)
		}
		if len(content) == 0 {
			continue
		}
		items := []any{content}
		if list, ok := content["items"].([]any); ok && strings.HasSuffix(fmt.Sprint(content["kind"]), "List") {
			items = list
		}
		if len(objects)+len(items) > maxObjects {
			return nil, wrong("the text has more than %d objects", maxObjects)
		}
		for _, item := range items {
			object, ok := item.(map[string]any)
			if !ok || object["kind"] == nil || object["apiVersion"] == nil {
				return nil, wrong("document %d is not an object: it has no apiVersion or no kind", i+1)
			}
			objects = append(objects, object)
		}
	}
	return objects, nil
}
