package main

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

const (
	jsonType   = "application/json"
	yamlType   = "application/yaml"
	mergeType  = "application/merge-patch+json"
	patchType  = "application/json-patch+json"
	strategic  = "application/strategic-merge-patch+json"
	applyType  = "application/apply-patch+yaml"
	tableType  = "application/json;as=Table;v=v1;g=meta.k8s.io"
	partial    = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	commonName = "subject"
)

// step is a request that is sent to both servers.
type step struct {
	name         string
	method, path string
	contentType  string
	accept       string
	// as is the user to impersonate, with these groups; empty for the administrator.
	as     string
	groups []string
	// body is sent as JSON, unless it is a string.
	body any
	// edit, when set, creates the body from the object at the path read. Each server is asked for that object first.
	edit func(live map[string]any) any
	read string
	// async reads are repeated for a while if the answers differ. settled, when set, is the path of an object that is
	// read in this way before the step.
	async   bool
	settled string
	// audited steps also compare the audit annotations of the request.
	audited bool
	// expect is the answer that kube-apiserver must give; nil allows any answer.
	expect *expectation
	// decided is the answer that Gatehouse must give if it differs by decision. If it is nil, both answers must be
	// equal.
	decided *expectation
}

// unserved reports whether an answer means that a server does not serve a custom resource. Answers about missing objects
// are JSON.
func (st step) unserved(a answer) bool {
	return a.Code == http.StatusNotFound && a.ContentType != jsonType && strings.Contains(st.path, ".example.com/")
}

func (s script) steps() ([]step, error) {
	var steps []step
	for _, r := range s.Requests {
		method, path, err := splitDo(r.Do)
		if err != nil {
			return nil, fmt.Errorf("script %q: %w", s.Name, err)
		}
		body := r.Body
		if text, ok := body.(string); ok {
			body = repeated.ReplaceAllStringFunc(text, func(found string) string {
				parts := repeated.FindStringSubmatch(found)
				times, _ := strconv.Atoi(parts[2])
				return strings.Repeat(parts[1], times)
			})
		}
		steps = append(steps, step{
			name: r.Do, method: method, path: path, contentType: r.Type, accept: r.Accept, as: r.As, body: body, async: r.Async,
		})
	}
	return steps, nil
}

// repeated finds <TEXT×N>, for bodies that are too long for a file.
var repeated = regexp.MustCompile(`<([^<>×]+)×(\d+)>`)

// steps returns the requests of the life cycle of an object of the kind.
func (k kind) steps() []step {
	name := k.Name
	if name == "" {
		name = commonName
	}
	all := k.path()
	one := all + "/" + name
	named := func(metadata map[string]any) map[string]any {
		return merge(k.Object, map[string]any{"metadata": merge(map[string]any{"name": name}, metadata)})
	}
	object := named(nil)
	labels := func(value string) map[string]any {
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{"step": value}}}
	}
	bare := map[string]any{"apiVersion": k.Object["apiVersion"], "kind": k.Object["kind"]}
	apply := func(team string) map[string]any { return merge(object, labels(team)) }

	var steps []step
	add := func(s step) {
		if k.Async {
			s.async, s.settled = true, one
		}
		steps = append(steps, s)
	}
	create := func(what, query string, body any) {
		add(step{name: "create " + what, method: "POST", path: all + query, body: body})
	}
	patch := func(what, contentType, path string, body any) {
		add(step{name: "patch " + what, method: "PATCH", path: path, contentType: contentType, body: body})
	}
	put := func(what, path string, edit func(map[string]any) any) {
		add(step{name: "update " + what, method: "PUT", path: path, read: strings.SplitN(path, "?", 2)[0], edit: edit})
	}
	get := func(what, path, accept string) {
		add(step{name: "get " + what, method: "GET", path: path, accept: accept})
	}
	remove := func(what, path string, body any) {
		add(step{name: "delete " + what, method: "DELETE", path: path, body: body})
	}

	create("dry run", "?dryRun=All", object)
	create("with unknown fields, Strict", "?dryRun=All&fieldValidation=Strict",
		merge(object, map[string]any{"bogus": "x", "metadata": map[string]any{"bogus": "y"}}))
	create("with unknown fields, Warn", "?dryRun=All&fieldValidation=Warn",
		merge(object, map[string]any{"bogus": "x", "metadata": map[string]any{"bogus": "y"}}))
	create("with unknown fields, Ignore", "?dryRun=All&fieldValidation=Ignore", merge(object, map[string]any{"bogus": "x"}))
	create("with a bad fieldValidation", "?dryRun=All&fieldValidation=Odd", object)
	create("with a bad dryRun", "?dryRun=Some", object)
	create("with a bad fieldManager", "?dryRun=All&fieldManager="+strings.Repeat("x", 200), object)
	create("without a name", "?dryRun=All", merge(bare, map[string]any{"spec": k.Object["spec"]}))
	create("with a name that is none", "?dryRun=All", named(map[string]any{"name": "Not A Name"}))
	create("with only a name", "?dryRun=All", merge(bare, map[string]any{"metadata": map[string]any{"name": name}}))
	create("of another kind", "?dryRun=All", merge(object, map[string]any{"kind": "Other"}))
	create("of another version", "?dryRun=All", merge(object, map[string]any{"apiVersion": "other/v1"}))
	create("in another namespace", "?dryRun=All", named(map[string]any{"namespace": "other"}))
	create("with a resource version", "?dryRun=All", named(map[string]any{"resourceVersion": "5"}))
	create("with a bad label", "?dryRun=All", named(map[string]any{"labels": map[string]any{"a": "not valid!"}}))
	create("from text that is not JSON", "", "{nonsense")
	create("from nothing", "", "")
	add(step{name: "create from a type that is not known", method: "POST", path: all, contentType: "text/csv", body: "a,b"})
	for i, change := range k.Invalid {
		create(fmt.Sprintf("invalid %d", i), "?dryRun=All", merge(object, change))
	}
	add(step{name: "create", method: "POST", path: all, body: object})
	create("again", "", object)
	get("", one, "")
	get("as a table", one, tableType)
	get("as metadata", one, partial)
	get("as something odd", one, "text/csv")
	get("the list by name", all+"?fieldSelector="+url.QueryEscape("metadata.name="+name), "")
	get("the list as a table", all+"?fieldSelector="+url.QueryEscape("metadata.name="+name), tableType)
	get("by an unknown field", all+"?fieldSelector=nothing%3Dx", "")

	put("without a change", one, func(live map[string]any) any { return live })
	put("with another name", one, edited(map[string]any{"name": "other"}))
	put("with a stale resource version", one, edited(map[string]any{"resourceVersion": "1"}))
	put("without a resource version", one+"?dryRun=All", edited(map[string]any{"resourceVersion": nil}))
	put("with another uid", one, edited(map[string]any{"uid": "11111111-1111-1111-1111-111111111111"}))
	put("of an object that does not exist", all+"/none", func(map[string]any) any {
		return merge(k.Object, map[string]any{"metadata": map[string]any{"name": "none"}})
	})
	put("with an unknown field, Strict", one+"?fieldValidation=Strict", func(live map[string]any) any {
		return merge(live, map[string]any{"bogus": "x"})
	})

	patch("merge", mergeType, one, labels("merge"))
	patch("JSON", patchType, one, []any{map[string]any{"op": "add", "path": "/metadata/annotations", "value": map[string]any{"a": "b"}}})
	patch("JSON, a test that fails", patchType, one, []any{map[string]any{"op": "test", "path": "/metadata/name", "value": "other"}})
	patch("JSON, a path that is not there", patchType, one, []any{map[string]any{"op": "replace", "path": "/nothing/here", "value": 1}})
	patch("JSON that is none", patchType, one, map[string]any{"op": "add"})
	patch("strategic", strategic, one, labels("strategic"))
	patch("strategic, unknown field, Strict", strategic, one+"?fieldValidation=Strict", merge(labels("x"), map[string]any{"bogus": "x"}))
	patch("merge, unknown field, Warn", mergeType, one+"?fieldValidation=Warn&dryRun=All", merge(labels("x"), map[string]any{"bogus": "x"}))
	patch("merge, the name", mergeType, one, map[string]any{"metadata": map[string]any{"name": "other"}})
	patch("merge, stale", mergeType, one, map[string]any{"metadata": map[string]any{"resourceVersion": "1"}})
	patch("merge of nothing there", mergeType, all+"/none", labels("x"))
	patch("of no known type", "text/plain", one, labels("x"))
	patch("that is not JSON", mergeType, one, "{nonsense")
	for i, change := range k.Updates {
		patch(fmt.Sprintf("update %d", i), mergeType, one+"?dryRun=All", change)
	}
	for i, change := range k.Updates {
		patch(fmt.Sprintf("strategic update %d", i), strategic, one+"?dryRun=All", change)
	}

	patch("apply without a manager", applyType, one, apply("a"))
	patch("apply by a", applyType, one+"?fieldManager=a&force=true", apply("a"))
	patch("apply by b, in conflict", applyType, one+"?fieldManager=b", apply("b"))
	patch("apply by b, by force", applyType, one+"?fieldManager=b&force=true", apply("b"))
	patch("apply, with an unknown field", applyType, one+"?fieldManager=a", merge(apply("a"), map[string]any{"bogus": "x"}))
	patch("apply with managedFields", applyType, one+"?fieldManager=a", named(map[string]any{"managedFields": []any{}}))

	if k.Status != nil {
		status := map[string]any{"status": k.Status}
		get("status", one+"/status", "")
		put("status", one+"/status", func(live map[string]any) any {
			return merge(live, merge(status, map[string]any{"metadata": map[string]any{"labels": map[string]any{"by": "status"}}}))
		})
		patch("status, merge", mergeType, one+"/status", merge(status, labels("status")))
		patch("status, strategic", strategic, one+"/status", status)
		patch("status through the object", mergeType, one+"?dryRun=All", status)
		patch("status, apply", applyType, one+"/status?fieldManager=s&force=true",
			merge(merge(bare, map[string]any{"metadata": map[string]any{"name": name}}), status))
	}
	get("of a subresource that is not there", one+"/nothing", "")
	get("after all this", one, "")

	remove("dry run", one+"?dryRun=All", nil)
	remove("with another uid", one, deleteOptions(map[string]any{"preconditions": map[string]any{"uid": "11111111-1111-1111-1111-111111111111"}}))
	remove("with an odd propagation policy", one, deleteOptions(map[string]any{"propagationPolicy": "Odd"}))
	remove("with two propagation policies", one, deleteOptions(map[string]any{"propagationPolicy": "Orphan", "orphanDependents": true}))
	patch("a finalizer on", mergeType, one, map[string]any{"metadata": map[string]any{"finalizers": []any{"example.com/hold"}}})
	remove("with a finalizer", one, nil)
	get("while it goes", one, "")
	patch("another finalizer while it goes", mergeType, one, map[string]any{"metadata": map[string]any{"finalizers": []any{"example.com/hold", "example.com/more"}}})
	patch("the finalizer off", mergeType, one, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	get("when it is gone", one, "")
	remove("when it is gone", one, nil)
	patch("apply to create", applyType, one+"?fieldManager=a", apply("a"))
	remove("in the foreground", one, deleteOptions(map[string]any{"propagationPolicy": "Foreground"}))
	patch("foreground's finalizer off", mergeType, one, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	add(step{name: "create from YAML", method: "POST", path: all, contentType: yamlType, body: object})
	add(step{name: "delete the collection", method: "DELETE", path: all + "?fieldSelector=" + url.QueryEscape("metadata.name="+name)})
	get("after the collection's deletion", one, "")
	return steps
}

// edited changes the metadata of a live object.
func edited(metadata map[string]any) func(map[string]any) any {
	return func(live map[string]any) any { return merge(live, map[string]any{"metadata": metadata}) }
}

func deleteOptions(fields map[string]any) map[string]any {
	out := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions"}
	maps.Copy(out, fields)
	return out
}
