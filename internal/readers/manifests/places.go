package manifests

import (
	"strconv"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Places finds the place of registrations in files. The zero value has none.
type Places struct{ registrations map[string]*Object }

// PlacesIn finds the registrations of some files.
func PlacesIn(texts map[string][]byte) Places {
	p := Places{}
	for file, text := range texts {
		for _, o := range Parse(file, text).Objects {
			p.Add(o)
		}
	}
	return p
}

// Add adds a registration, by its kind and name.
func (p *Places) Add(o *Object) {
	if p.registrations == nil {
		p.registrations = map[string]*Object{}
	}
	kind, _ := o.Content["kind"].(string)
	p.registrations[kind+"/"+o.Name()] = o
}

// Find returns the registration of a kind and name, nil if there is none.
func (p *Places) Find(kind, name string) *Object { return p.registrations[kind+"/"+name] }

// Locate returns the place of a rule, or of the entry if rule is nil; nil if the entry is not in
// the files.
func (p Places) Locate(e *plan.Entry, rule *int) *plan.Location {
	o := p.Find(e.Kind, e.Configuration)
	if o == nil {
		return nil
	}
	var path []any
	var text string
	if e.Name == "" {
		path, text = []any{"spec"}, "spec"
		if rule != nil {
			path, text = append(path, "matchConstraints", "resourceRules", *rule), "spec.matchConstraints.resourceRules["+strconv.Itoa(*rule)+"]"
		}
	} else {
		field := "webhooks"
		switch e.Kind {
		case registration.ExternalKind:
			field = "externalAdmissionHooks"
		case registration.InitializerKind:
			field = "initializers"
		}
		path, text = []any{field, e.Index}, field+"["+strconv.Itoa(e.Index)+"]"
		if rule != nil {
			path = append(path, "rules", *rule)
			text += ".rules[" + strconv.Itoa(*rule) + "]"
		}
	}
	line, _ := o.ValueOf(path)
	return &plan.Location{File: o.File, Line: line, Field: text}
}

// Name returns the name of the object, empty if it has none.
func (o *Object) Name() string {
	metadata, _ := o.Content["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	return name
}

// Unstructured returns the object for client libraries. It shares the Content.
func (o *Object) Unstructured() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: o.Content}
}

// Unstructured returns the objects for client libraries; none for a nil Set.
func (s *Set) Unstructured() (list []*unstructured.Unstructured) {
	if s == nil {
		return nil
	}
	for _, o := range s.Objects {
		list = append(list, o.Unstructured())
	}
	return list
}
