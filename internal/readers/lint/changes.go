package lint

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-openapi/jsonpointer"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// eachChange returns a check that calls check for each kind that a mutation changes, with the values that the mutation
// may make.
func eachChange(check func(*pass, *fact, subject, []expression.Made)) func(*pass) {
	return eachFact(func(p *pass, f *fact) {
		if f.use != mutation || f.broken != nil || p.Schemas == nil {
			return
		}
		reach, ok := expression.NewReach(f.text)
		if !ok {
			return
		}
		list, others := p.subjects(f.entry)
		if len(list) == 0 && others {
			// Of the objects of any kind, only the metadata is known.
			list = []subject{{Resource: &Resource{}}}
		}
		for i, s := range list {
			if i < mostTyped {
				check(p, f, s, reach.MadeFor(p.ctx, s.kind))
			}
		}
	})
}

// failing returns the level and the consequence of a mutation that fails.
func (p *pass) failing(f *fact, always bool) (level report.Level, follows string) {
	switch {
	case !p.rejects(f.entry):
		return Warning, "the mutation changes nothing"
	case always:
		return Error, "each request is rejected"
	}
	return Warning, "the requests that it changes are rejected"
}

// stepsOf returns the path of a type of objects in mutations, such as Object.spec.containers.
func stepsOf(made *expression.Made) []string { return strings.Split(made.Type, ".")[1:] }

var mutationAtomicList = &Rule{
	ID: "mutation-atomic-list", Level: Error,
	Reads: []Part{Kinds, Definitions},
	check: eachChange(func(p *pass, f *fact, s subject, list []expression.Made) {
		if f.path[2] != "applyConfiguration" {
			return
		}
		for _, made := range list {
			for _, name := range slices.Sorted(maps.Keys(made.Fields)) {
				path := append(slices.Clip(stepsOf(&made)), name)
				if !atomic(fieldOf(p.schemaOf(s.kind), path)) {
					continue
				}
				level, follows := p.failing(f, made.Always)
				p.findsAs(level, f.at(), "an applyConfiguration of %s sets %s of a %s, which is atomic, so that an API server does not merge it: %s; use jsonPatch", f.entry, strings.Join(path, "."), s.kind.Kind, follows)
				return
			}
		}
	}),
}

// atomic reports whether a field is replaced as a whole by a server-side apply.
func atomic(s *spec.Schema) bool {
	switch {
	case s == nil || len(s.Type) != 1:
		return false
	case s.Type[0] == "array":
		kind, _ := s.Extensions.GetString("x-kubernetes-list-type")
		return kind == "" || kind == "atomic"
	case s.Type[0] == "object":
		kind, _ := s.Extensions.GetString("x-kubernetes-map-type")
		return kind == "atomic"
	}
	return false
}

var listElementIncomplete = &Rule{
	ID: "list-element-incomplete", Level: Error,
	Reads: []Part{Kinds, Definitions},
	check: eachChange(func(p *pass, f *fact, s subject, list []expression.Made) {
		for _, made := range list {
			steps := stepsOf(&made)
			if len(steps) == 0 || made.Type == "JSONPatch" {
				continue
			}
			field := fieldOf(p.schemaOf(s.kind), steps)
			if field == nil || field.Items == nil || field.Items.Schema == nil {
				continue
			}
			element := field.Items.Schema
			needed, _ := field.Extensions.GetStringSlice("x-kubernetes-list-map-keys")
			if made.Patched {
				needed = element.Required
			}
			for _, name := range needed {
				// Built-in kinds have zero values as defaults of fields without one.
				d := element.Properties[name].Default
				if _, ok := made.Fields[name]; ok || d != nil && d != "" && d != 0 {
					continue
				}
				level, follows := p.failing(f, made.Always)
				p.findsAs(level, f.at(), "a mutation of %s makes an element of %s without %s, which it needs: %s", f.entry, strings.Join(steps, "."), name, follows)
				return
			}
		}
	}),
}

var podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

// optionalOfPods are fields that admission plugins set in some pods: a pod that does not mount its token has no volume.
var optionalOfPods = []string{"spec.volumes", "spec.nodeSelector", "spec.imagePullSecrets"}

var patchReplacesList = &Rule{
	ID: "patch-replaces-list", Level: Warning,
	Reads: []Part{Kinds, Definitions},
	check: eachChange(func(p *pass, f *fact, s subject, list []expression.Made) {
		for _, made := range list {
			steps := pointerSteps(made.Fields["path"])
			if made.Type != "JSONPatch" || made.Fields["op"] != "add" || !made.List || len(steps) == 0 || isIndex(steps[len(steps)-1]) {
				continue
			}
			field := fieldOf(p.schemaOf(s.kind), steps)
			if field == nil || len(field.Type) != 1 || field.Type[0] != "array" || p.reads(f.entry, steps) {
				continue
			}
			// An atomic list has one author. An empty list removes the elements on purpose, unless others follow.
			if atomic(field) && !made.Empty || made.Empty && !slices.ContainsFunc(list, func(other expression.Made) bool { return other.Parent == made.Fields["path"] }) ||
				slices.ContainsFunc(list, func(other expression.Made) bool {
					return other.Fields["op"] == "test" && other.Fields["path"] == made.Fields["path"]
				}) {
				continue
			}
			level, which, special, applies := p.withoutField(f, &s, nil)
			if !applies || special {
				continue
			}
			where := f.at()
			p.findsCause(level, where, where.object.String()+pathText(where.path), "a "+s.kind.Kind, "a jsonPatch of %s adds the list %s to a %s%s, and an add replaces the list of an object that has one (RFC 6902, section 4.1): its elements are lost; test has(object.%s), and add to %[2]s/- then",
				f.entry, made.Fields["path"], s.kind.Kind, which, celPath(steps))
			return
		}
	}),
}

// celPath returns the steps of a JSON pointer as a field of an expression.
func celPath(steps []string) string {
	var path []any
	for _, step := range steps {
		if n, err := strconv.Atoi(step); err == nil {
			path = append(path, n)
			continue
		}
		path = append(path, step)
	}
	return pathText(path)
}

// pointerSteps returns the steps of a JSON pointer.
func pointerSteps(pointer string) (steps []string) {
	for _, step := range strings.Split(pointer, "/")[1:] {
		steps = append(steps, jsonpointer.Unescape(step))
	}
	return steps
}

var patchParentMissing = &Rule{
	ID: "patch-parent-missing", Level: Warning,
	Reads: []Part{Kinds, Definitions},
	check: eachChange(func(p *pass, f *fact, s subject, list []expression.Made) {
		smallest := p.smallest(&s)
		for _, made := range list {
			if made.Type != "JSONPatch" || made.Parent == "" || made.Fields["op"] == "test" {
				continue
			}
			parent := pointerSteps(made.Parent)
			for n := 1; n <= len(parent); n++ {
				optional := s.kind == podKind && slices.Contains(optionalOfPods, strings.Join(parent[:n], "."))
				if !optional && !p.lacks(&s, smallest, parent[:n]) || p.guarded(f, &s, parent[:n]) {
					continue
				}
				level, which, _, applies := p.withoutField(f, &s, parent[:n])
				if !applies {
					continue
				}
				follows := "the mutation changes nothing"
				if p.rejects(f.entry) {
					follows = "each request" + which + " is rejected"
				}
				p.findsAs(level, f.at(), "a jsonPatch of %s changes a field below %s, which %s need not have, and nothing in the policy adds it or tests it: without it the patch fails, and %s",
					f.entry, made.Parent, cmp.Or(strings.TrimSuffix("a "+s.kind.Kind, "a "), "an object"), follows)
				return
			}
		}
	}),
}

// withoutField describes the requests whose object has no field at a path and which a mutation receives, as remaining
// does. Without a path, it describes all requests that the mutation receives. applies is false if a match condition excludes them.
func (p *pass) withoutField(f *fact, s *subject, path []string) (level report.Level, which string, special, applies bool) {
	list := p.operationsOn(f.entry, s)
	if len(list) == 0 {
		list = operations(f.entry.Rules)
	}
	for _, operation := range list {
		setting := settingFor(f, s, operation)
		setting.Missing = path
		if len(path) > 0 && !slices.ContainsFunc(path, isIndex) {
			setting.Object = expression.Without(path...)
		}
		if open, ok := p.meets(f, &setting); ok {
			level, which, special = p.remaining(&setting, p.smallest(s), open)
			return level, which, special, true
		}
	}
	return Warning, "", false, false
}

// admits reports whether match conditions are true for each object without a field.
func (p *pass) admits(f *fact, s *subject, conditions []*fact, path []string) bool {
	if slices.ContainsFunc(path, isIndex) {
		return false
	}
	for _, operation := range p.operationsOn(f.entry, s) {
		setting := settingFor(f, s, operation)
		setting.Object, setting.Missing = expression.Without(path...), path
		if slices.ContainsFunc(conditions, func(c *fact) bool { return c.trials.Of(p.ctx, &setting).Value != types.True }) {
			return false
		}
	}
	return true
}

// reads reports whether an expression of a policy reads a field of the object.
func (p *pass) reads(e *snapshot.Entry, path []string) bool { return len(p.readers(e, path)) > 0 }

// readers returns the expressions of a policy that read a field of the object.
func (p *pass) readers(e *snapshot.Entry, path []string) (list []*fact) {
	// Expressions read any element of a list.
	read := slices.Clone(path)
	for i, step := range read {
		if isIndex(step) {
			read[i] = expression.Element
		}
	}
	for _, f := range p.factsOf(e) {
		if f.trials != nil && slices.ContainsFunc(f.trials.Reads(), func(one []string) bool {
			return (one[0] == "object" || one[0] == "oldObject") && starts(one[1:], read)
		}) {
			list = append(list, f)
		}
	}
	return list
}

// guarded reports whether an expression of the policy of a mutation reads a field of the object, or adds it. Match
// conditions that are true for objects without the field guard nothing.
func (p *pass) guarded(f *fact, s *subject, path []string) bool {
	e := f.entry
	readers := p.readers(e, path)
	if slices.ContainsFunc(readers, func(other *fact) bool { return other.use != condition }) || len(readers) > 0 && !p.admits(f, s, readers, path) {
		return true
	}
	pointer := "/" + strings.Join(path, "/")
	// An applyConfiguration names no element of a list.
	names := slices.DeleteFunc(slices.Clone(path), isIndex)
	for _, f := range p.factsOf(e) {
		if f.trials == nil {
			continue
		}
		reach, ok := expression.NewReach(f.text)
		if ok && f.use == mutation && slices.ContainsFunc(reach.MadeFor(p.ctx, schema.GroupVersionKind{}), func(m expression.Made) bool {
			if m.Type == "JSONPatch" {
				return m.Fields["path"] == pointer
			}
			if m.Patched {
				// The value of a patch, such as an element of the list.
				return false
			}
			// An applyConfiguration makes all parents of its fields.
			return starts(append(stepsOf(&m), ""), names) || slices.ContainsFunc(slices.Collect(maps.Keys(m.Fields)), func(name string) bool { return starts(append(stepsOf(&m), name), names) })
		}) {
			return true
		}
	}
	return false
}

// isIndex reports whether a step of a JSON pointer is an index of a list.
func isIndex(step string) bool { return step == "-" || strings.Trim(step, "0123456789") == "" }

func starts(path, with []string) bool {
	return len(path) >= len(with) && slices.Equal(path[:len(with)], with)
}

// immutable are the kinds with fields below a path that an update must not change, and the fields there that it may
// change. Updates may change the template of a suspended Job.
var immutable = []struct {
	kind                schema.GroupVersionKind
	what, below, unless string
	changeable          []string
}{
	{podKind, "pod", "spec.", "", []string{
		"spec.containers.image", "spec.initContainers.image", "spec.activeDeadlineSeconds", "spec.terminationGracePeriodSeconds", "spec.tolerations", "spec.schedulingGates",
	}},
	{schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, "job", "spec.template.", "suspend", nil},
}

var mutationImmutableField = &Rule{
	ID: "mutation-immutable-field", Level: Warning, Advice: "dont-change-immutable-objects",
	Reads: []Part{Kinds},
	check: eachChange(func(p *pass, f *fact, s subject, list []expression.Made) {
		if f.entry.Source != registration.MutatingPolicies || !slices.Contains(p.operationsOn(f.entry, &s), "UPDATE") || p.onlyNew(f.entry) {
			return
		}
		for _, of := range immutable {
			if of.kind != s.kind || of.unless != "" && p.mentions(f.entry, of.unless) {
				continue
			}
			for _, made := range list {
				for _, field := range changes(&made) {
					if !strings.HasPrefix(field, of.below) || slices.ContainsFunc(of.changeable, func(may string) bool { return field == may || strings.HasPrefix(field, may+".") }) {
						continue
					}
					which := ""
					if len(f.entry.MatchConditions) > 0 {
						which = " and meets the match conditions"
					}
					p.finds(f.at(), "the mutation of %s sets %s of %[3]ss under UPDATE, and an update of a %[3]s must not change it: every update of a %[3]s that was created without it%[4]s is rejected", f.entry, field, of.what, which)
					return
				}
			}
		}
	}),
}

// mentions reports whether an expression of a policy has a word.
func (p *pass) mentions(e *snapshot.Entry, word string) bool {
	return slices.ContainsFunc(p.factsOf(e), func(f *fact) bool { return strings.Contains(f.text, word) })
}

// onlyNew reports whether a policy may tell new objects from stored ones.
func (p *pass) onlyNew(e *snapshot.Entry) bool {
	return p.spared(e)["UPDATE"] || slices.ContainsFunc(p.factsOf(e), func(f *fact) bool {
		return f.use != other && (strings.Contains(f.text, "oldObject") || strings.Contains(f.text, "request.operation"))
	})
}

// changes returns the fields that a value of a mutation sets, without fields that have values of their own, and without
// the keys of list elements.
func changes(made *expression.Made) (list []string) {
	if made.Type == "JSONPatch" {
		if op := made.Fields["op"]; op != "add" && op != "replace" && op != "remove" {
			return nil
		}
		steps := slices.DeleteFunc(strings.Split(made.Fields["path"], "/")[min(1, len(made.Fields["path"])):], isIndex)
		return []string{strings.Join(steps, ".")}
	}
	steps := stepsOf(made)
	for name := range made.Fields {
		if made.Objects[name] || name == "name" && len(steps) > 1 {
			continue
		}
		list = append(list, strings.Join(append(slices.Clip(steps), name), "."))
	}
	slices.Sort(list)
	return list
}
