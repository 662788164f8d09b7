package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// policyCase is one document of cases/policies/*.yaml: admission policies that are created on both servers, and
// requests that are evaluated against them. cases/policies/README.md describes the fields and their defaults.
type policyCase struct {
	Name string `json:"name"`
	// Given are objects that exist before the policies, such as params.
	Given []map[string]any `json:"given"`
	// Policies and Bindings are active while the requests are sent.
	Policies []map[string]any `json:"policies"`
	Bindings []map[string]any `json:"bindings"`
	// Unbound policies get no default binding.
	Unbound bool `json:"unbound"`
	// Requests are sent as soon as the policies and bindings are active.
	Requests []policyRequest `json:"requests"`
}

// policyRequest is a request with the answer that kube-apiserver must give; it verifies the claim of the case's name.
type policyRequest struct {
	Do     string   `json:"do"`
	Type   string   `json:"type"`
	As     string   `json:"as"`
	Groups []string `json:"groups"`
	Body   any      `json:"body"`
	// Expect is kube-apiserver's code: 0 means 200 or 201.
	Expect int `json:"expect"`
	// Says is a text in kube-apiserver's answer: its body, warnings or audit annotations.
	Says string `json:"says"`
	// Decided is the expected answer of Gatehouse, if it differs from kube-apiserver's answer by decision.
	Decided *struct {
		Expect int    `json:"expect"`
		Says   string `json:"says"`
	} `json:"decided"`
	// Async requests are repeated for a while if the answers differ, or if kube-apiserver's answer is not the
	// expected one.
	Async bool `json:"async"`
	// Times is the number of times that the request is sent; 0 means once.
	Times int `json:"times"`
	// Pod is merged onto a pod with one container and becomes the body. If Do is empty, the request creates the pod.
	Pod map[string]any `json:"pod"`
}

const (
	policyCases  = "cases/policies"
	fixturesFile = policyCases + "/fixtures.yaml"
	// markers is the namespace of the requests that check whether policies are active.
	markers = "markers"
	// inForceWithin is the time in which policies must become active.
	inForceWithin = time.Minute
)

const admissionregistration = "/apis/admissionregistration.k8s.io/v1/"

// collections maps the short names in cases to the paths of collections.
var collections = map[string]string{
	"{cm}":      "/api/v1/namespaces/{ns}/configmaps",
	"{secrets}": "/api/v1/namespaces/{ns}/secrets",
	"{pods}":    "/api/v1/namespaces/{ns}/pods",
	"{svc}":     "/api/v1/namespaces/{ns}/services",
	"{deploy}":  "/apis/apps/v1/namespaces/{ns}/deployments",
	"{widgets}": "/apis/policies.example.com/v1/namespaces/{ns}/widgets",
	"{vap}":     admissionregistration + "validatingadmissionpolicies",
	"{vapb}":    admissionregistration + "validatingadmissionpolicybindings",
	"{map}":     admissionregistration + "mutatingadmissionpolicies",
	"{mapb}":    admissionregistration + "mutatingadmissionpolicybindings",
	"{pvc}":     "/api/v1/namespaces/{ns}/persistentvolumeclaims",
	"{sa}":      "/api/v1/namespaces/{ns}/serviceaccounts",
	"{quota}":   "/api/v1/namespaces/{ns}/resourcequotas",
	"{ing}":     "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses",
	"{csr}":     "/apis/certificates.k8s.io/v1/certificatesigningrequests",
	"{ctb}":     "/apis/certificates.k8s.io/v1/clustertrustbundles",
}

// loadPolicies returns the cases, and the objects that all of them can use.
func loadPolicies() (cases []policyCase, fixtures []map[string]any, err error) {
	err = fs.WalkDir(files, policyCases, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" || path == fixturesFile {
			return err
		}
		some, err := documents[policyCase](path)
		for i := range some {
			some[i].Name = "policies/" + strings.TrimSuffix(filepath.Base(path), ".yaml") + ": " + some[i].Name
		}
		cases = append(cases, some...)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	seen := map[string]bool{}
	for _, c := range cases {
		if seen[c.Name] {
			return nil, nil, fmt.Errorf("there are two cases %q", c.Name)
		}
		seen[c.Name] = true
	}
	fixtures, err = documents[map[string]any](fixturesFile)
	return cases, fixtures, err
}

// in returns a copy of the case for a namespace, with the defaults filled in.
func (c policyCase) in(ns string) (policyCase, error) { return c.with(ns, nil) }

// with is like in, and replaces more words in braces.
func (c policyCase) with(ns string, values map[string]string) (policyCase, error) {
	c.Requests = podsFilled(c.Requests)
	data, err := json.Marshal(c)
	if err != nil {
		return c, err
	}
	for short, path := range collections {
		data = bytes.ReplaceAll(data, []byte(short), []byte(path))
	}
	for word, value := range values {
		quoted, err := json.Marshal(value)
		if err != nil {
			return c, err
		}
		data = bytes.ReplaceAll(data, []byte(word), bytes.Trim(quoted, `"`))
	}
	data = bytes.ReplaceAll(data, []byte("{ns}"), []byte(ns))
	filled := policyCase{}
	if err := json.Unmarshal(data, &filled); err != nil {
		return c, err
	}
	for i, p := range filled.Policies {
		kind := "ValidatingAdmissionPolicy"
		spec, _ := p["spec"].(map[string]any)
		if _, mutating := spec["mutations"]; mutating {
			kind = "MutatingAdmissionPolicy"
		}
		filled.Policies[i] = withKind(kind, p)
		spec, _ = filled.Policies[i]["spec"].(map[string]any)
		if spec["matchConstraints"] == nil {
			spec["matchConstraints"] = map[string]any{"resourceRules": []any{configMapWrites}}
		}
		if kind == "MutatingAdmissionPolicy" && spec["reinvocationPolicy"] == nil {
			spec["reinvocationPolicy"] = "Never"
		}
		if len(c.Bindings) == 0 && !c.Unbound {
			name := nameOf(p)
			filled.Bindings = append(filled.Bindings, map[string]any{
				"metadata": map[string]any{"name": name + "-binding"}, "spec": map[string]any{"policyName": name},
			})
		}
	}
	for i, b := range filled.Bindings {
		spec, _ := b["spec"].(map[string]any)
		kind := "ValidatingAdmissionPolicyBinding"
		for _, p := range filled.Policies {
			if nameOf(p) == spec["policyName"] && p["kind"] == "MutatingAdmissionPolicy" {
				kind = "MutatingAdmissionPolicyBinding"
			}
		}
		filled.Bindings[i] = withKind(kind, b)
		if kind == "ValidatingAdmissionPolicyBinding" && spec["validationActions"] == nil {
			spec["validationActions"] = []any{"Deny"}
		}
	}
	return filled, nil
}

var configMapWrites = map[string]any{
	"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE", "UPDATE"}, "resources": []any{"configmaps"},
}

func withKind(kind string, object map[string]any) map[string]any {
	filled := maps.Clone(object)
	if filled["kind"] == nil {
		filled["kind"] = kind
	}
	if filled["apiVersion"] == nil {
		filled["apiVersion"] = "admissionregistration.k8s.io/v1"
	}
	return filled
}

func nameOf(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	return text(metadata["name"])
}

// plurals are the resources of kinds whose plural is not the kind and an s.
var plurals = map[string]string{
	"ValidatingAdmissionPolicy": "validatingadmissionpolicies", "MutatingAdmissionPolicy": "mutatingadmissionpolicies", "NetworkPolicy": "networkpolicies",
	"Ingress": "ingresses", "IngressClass": "ingressclasses", "StorageClass": "storageclasses", "PriorityClass": "priorityclasses",
	"RuntimeClass": "runtimeclasses", "VolumeAttributesClass": "volumeattributesclasses",
}

// collectionOf returns the path of the collection of an object.
func collectionOf(object map[string]any) string {
	gv, _ := schema.ParseGroupVersion(text(object["apiVersion"]))
	kind := text(object["kind"])
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	metadata, _ := object["metadata"].(map[string]any)
	if ns := text(metadata["namespace"]); ns != "" {
		path += "/namespaces/" + ns
	}
	plural := plurals[kind]
	if plural == "" {
		plural = strings.ToLower(kind) + "s"
	}
	return path + "/" + plural
}

// policies runs the cases of admission policies.
func (r *runner) policies(ctx context.Context, only *regexp.Regexp) error {
	cases, fixtures, err := loadPolicies()
	if err != nil {
		return err
	}
	cases = slices.DeleteFunc(cases, func(c policyCase) bool { return !only.MatchString(c.Name) })
	if len(cases) == 0 {
		return nil
	}
	// These objects are created while there are no policies: a deleted policy may stay active for a moment.
	if err := r.create(ctx, "policies", append(namespaceObjects(markers), fixtures...)); err != nil {
		return err
	}
	for i, c := range cases {
		ns := fmt.Sprintf("case-%03d", i)
		if cases[i], err = c.in(ns); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		if err := r.create(ctx, c.Name, append(namespaceObjects(ns), cases[i].Given...)); err != nil {
			return err
		}
	}
	for i, c := range cases {
		if err := r.policyCase(ctx, c, i); errors.Is(err, errUnexpected) {
			r.tally.unexpected = append(r.tally.unexpected, fmt.Sprintf("%s: %v", c.Name, err))
		} else if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return nil
}

// namespaceObjects returns a namespace and the service account that its pods need: no controller creates it.
func namespaceObjects(name string) []map[string]any {
	return []map[string]any{
		{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}},
		{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "default", "namespace": name}},
	}
}

func (r *runner) policyCase(ctx context.Context, c policyCase, number int) (err error) {
	defer func() { err = errors.Join(err, r.forget(ctx, c)) }()
	var rules []map[string]any
	rules = append(append(rules, c.Policies...), c.Bindings...)
	if err := r.create(ctx, c.Name, rules); err != nil {
		return err
	}
	if len(rules) > 0 {
		for _, s := range r.sessions() {
			if err := s.awaitInForce(ctx, number); err != nil {
				return err
			}
		}
	}
	var steps []step
	for _, req := range c.Requests {
		method, path, err := splitDo(req.Do)
		if err != nil {
			return err
		}
		st := step{
			name: req.Do, method: method, path: path, contentType: req.Type, as: req.As, groups: req.Groups, body: req.Body,
			async: req.Async, audited: true, expect: &expectation{req.Expect, req.Says},
		}
		if d := req.Decided; d != nil {
			st.decided = &expectation{d.Expect, d.Says}
		}
		if method == http.MethodPatch && st.contentType == "" {
			st.contentType = mergeType
		}
		for range max(1, req.Times) {
			steps = append(steps, st)
		}
	}
	return r.run(ctx, c.Name, steps)
}

// forget deletes the policies and bindings of a case.
func (r *runner) forget(ctx context.Context, c policyCase) error {
	for _, s := range r.sessions() {
		for _, object := range slices.Concat(c.Bindings, c.Policies) {
			path := collectionOf(object) + "/" + nameOf(object)
			if a, err := s.send(ctx, step{method: http.MethodDelete, path: path}); err != nil {
				return err
			} else if a.Code != http.StatusOK && a.Code != http.StatusNotFound {
				return fmt.Errorf("deleting %s: %d: %v", path, a.Code, a.Body)
			}
		}
	}
	return nil
}

// create creates the objects of a case on all servers. If an emulated or older release does not accept an object, the
// answers are compared: both servers must reject it.
func (r *runner) create(ctx context.Context, name string, objects []map[string]any) error {
	refused := map[int]answer{}
	for at, s := range r.sessions() {
		for i, object := range objects {
			last, err := s.make(ctx, object)
			if err == nil || !s.emulates || !errors.Is(err, errUnexpected) {
				if err != nil {
					return err
				}
				last = answer{}
			}
			if at > 0 {
				differences := compare(refused[i], last)
				if r.neighbours != nil {
					differences = between(at, refused[i], last)
				}
				r.note(differences, name, fmt.Sprintf("creating %s %s", object["kind"], nameOf(object)), collectionOf(object))
			}
			refused[i] = last
		}
	}
	return nil
}

// create creates an object of a case.
func (s *session) create(ctx context.Context, object map[string]any) error {
	_, err := s.make(ctx, object)
	return err
}

// make creates an object with its status, and returns the last answer if it fails.
func (s *session) make(ctx context.Context, object map[string]any) (answer, error) {
	path := collectionOf(object)
	var last answer
	// A new kind may not be served yet.
	for deadline := time.Now().Add(inForceWithin); time.Now().Before(deadline); {
		var err error
		if last, err = s.send(ctx, step{method: http.MethodPost, path: path, body: object}); err != nil {
			return last, err
		}
		if last.Code == http.StatusCreated {
			return s.complete(ctx, path, object)
		}
		// The groups of the release itself are served from the start.
		own := s.emulates && !strings.Contains(path, ".example.com/")
		if last.Code != http.StatusNotFound && last.Code != http.StatusServiceUnavailable || own && last.Code == http.StatusNotFound {
			break
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return last, context.Cause(ctx)
		}
	}
	return last, fmt.Errorf("%w: %s: creating %s %s: %d: %s", errUnexpected, s.name, object["kind"], nameOf(object), last.Code, show(last.Body))
}

// complete writes the status of an object, because a create ignores it. It returns the answer.
func (s *session) complete(ctx context.Context, path string, object map[string]any) (answer, error) {
	if object["status"] == nil {
		return answer{}, nil
	}
	path += "/" + nameOf(object) + "/status"
	a, err := s.send(ctx, step{method: http.MethodPatch, path: path, contentType: mergeType, body: map[string]any{"status": object["status"]}})
	if err == nil && a.Code != http.StatusOK {
		err = fmt.Errorf("%w: %s: %s: %d: %s", errUnexpected, s.name, path, a.Code, show(a.Body))
	}
	return a, err
}

// awaitInForce waits until all policies and bindings written before are active, and all deleted ones are inactive. It
// creates two marker policies and waits until both are active: upstream does not report when a policy becomes active,
// but it reads each kind in order, and the policies of a moment together with the bindings of that moment.
func (s *session) awaitInForce(ctx context.Context, number int) error {
	name := fmt.Sprintf("marker-%03d", number)
	// No policy of the cases matches leases.
	constraints := map[string]any{"resourceRules": []any{map[string]any{
		"apiGroups": []any{"coordination.k8s.io"}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"leases"},
		"resourceNames": []any{name},
	}}}
	metadata := map[string]any{"name": name}
	objects := []map[string]any{
		withKind("MutatingAdmissionPolicy", map[string]any{"metadata": metadata, "spec": map[string]any{
			"matchConstraints": constraints, "reinvocationPolicy": "Never",
			"mutations": []any{map[string]any{"patchType": "JSONPatch", "jsonPatch": map[string]any{
				"expression": `[JSONPatch{op: "add", path: "/metadata/labels", value: {"marked": "yes"}}]`,
			}}},
		}}),
		withKind("ValidatingAdmissionPolicy", map[string]any{"metadata": metadata, "spec": map[string]any{
			"matchConstraints": constraints,
			"validations":      []any{map[string]any{"expression": "!has(object.metadata.labels)", "message": name}},
		}}),
		withKind("MutatingAdmissionPolicyBinding", map[string]any{"metadata": metadata, "spec": map[string]any{"policyName": name}}),
		withKind("ValidatingAdmissionPolicyBinding", map[string]any{"metadata": metadata, "spec": map[string]any{
			"policyName": name, "validationActions": []any{"Warn"},
		}}),
	}
	lease := map[string]any{"metadata": map[string]any{"name": name}}
	for _, object := range objects {
		err := s.create(ctx, object)
		if s.emulates && errors.Is(err, errUnexpected) && strings.HasPrefix(text(object["kind"]), "Mutating") {
			// The release has no mutating policies: create the lease with the labels that the policy would add.
			lease = map[string]any{"metadata": map[string]any{"name": name, "labels": map[string]any{"marked": "yes"}}}
		} else if err != nil {
			return err
		}
	}
	defer func() {
		slices.Reverse(objects)
		for _, object := range objects {
			_, _ = s.send(ctx, step{method: http.MethodDelete, path: collectionOf(object) + "/" + name})
		}
	}()
	probe := step{
		method: http.MethodPost, path: "/apis/coordination.k8s.io/v1/namespaces/" + markers + "/leases?dryRun=All",
		body: lease,
	}
	deadline := time.Now().Add(inForceWithin)
	for {
		a, err := s.send(ctx, probe)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(a.Warnings, func(w string) bool { return strings.Contains(w, "'"+name+"'") }) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: policies are not in force %s after they were written: %d: %v", s.name, inForceWithin, a.Code, a.Body)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// expectation is the answer that a case requires.
type expectation struct {
	code int
	says string
}

var errUnexpected = errors.New("not as the case expects")

// met returns an error if an answer does not meet the expectation.
func (e *expectation) met(a answer) error {
	if e == nil {
		return nil
	}
	codes := []int{e.code}
	if e.code == 0 {
		codes = []int{http.StatusOK, http.StatusCreated}
	}
	if !slices.Contains(codes, a.Code) {
		return fmt.Errorf("%w: %d instead of %v: %s", errUnexpected, a.Code, codes, show(a.Body))
	}
	data := &bytes.Buffer{}
	encoder := json.NewEncoder(data)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode([]any{a.Body, a.Warnings, a.Audit}); err != nil {
		return err
	}
	quoted := &bytes.Buffer{}
	encoder = json.NewEncoder(quoted)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(e.says); err != nil {
		return err
	}
	if !bytes.Contains(data.Bytes(), bytes.Trim(quoted.Bytes(), "\"\n")) && !bytes.Contains(data.Bytes(), []byte(e.says)) {
		return fmt.Errorf("%w: %q is not in: %s", errUnexpected, e.says, data.Bytes())
	}
	return nil
}
