package suite

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite/solve"
)

// provide chooses the params of the policy among the objects of the test environment, or makes some that its expressions
// distinguish. why is the reason if there are none.
func (f *firstTests) provide() (why string, err error) {
	f.param = nil
	gv, _ := schema.ParseGroupVersion(at(f.policy.Content, "spec", "paramKind", "apiVersion"))
	name := at(f.policy.Content, "spec", "paramKind", "kind")
	ref, _ := walk(f.binding.Content, "spec", "paramRef").(map[string]any)
	if name == "" || ref == nil {
		return "", nil
	}
	kind := f.stage.Kinds().Of(gv.WithKind(name))
	if kind.Guessed {
		return fmt.Sprintf("no file defines %s of %s, the kind of its params; add the definition", name, gv), nil
	}
	about := offline.SchemaOf(kind.Kind, f.definitions)
	written, selector, err := selectorOf(ref, "selector")
	if err != nil {
		return "the selector of the params is invalid: " + err.Error(), nil
	}
	namespace := ""
	if kind.Namespaced {
		if namespace = at(ref, "namespace"); namespace == "" {
			if namespace, _, why = f.namespace(); why != "" {
				return why, nil
			}
		}
	}
	byName := at(ref, "name")
	for _, o := range f.set.Objects {
		u := o.Unstructured()
		if u.GroupVersionKind().GroupKind() != kind.Kind.GroupKind() || kind.Namespaced && cmp.Or(u.GetNamespace(), metav1.NamespaceDefault) != namespace {
			continue
		}
		if byName != "" && u.GetName() == byName || byName == "" && selector.Matches(labels.Set(u.GetLabels())) {
			f.param = &solve.Document{Sent: o.Content, Seen: runtime.DeepCopyJSON(o.Content), Schema: about, Fixed: true}
			return "", nil
		}
	}
	object := baseOf(kind, about)
	meta := map[string]any{"name": cmp.Or(byName, "test-params")}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	chosen := selected{[]*metav1.LabelSelector{written}, []labels.Selector{selector}}
	if of := chosen.labels(); byName == "" && len(of) > 0 {
		meta["labels"] = map[string]any{}
		for key, value := range of {
			meta["labels"].(map[string]any)[key] = value
		}
	}
	object["metadata"] = meta
	f.param = &solve.Document{Sent: object, Seen: runtime.DeepCopyJSON(object), Schema: about}
	if err := f.distinguish(); err != nil {
		return "", err
	}
	return f.store(kind)
}

// withParams returns a request with the params of the policy.
func (f *firstTests) withParams(st *solve.State) *solve.State {
	if f.param == nil {
		return st
	}
	return st.Provide(solve.Params, f.param)
}

// distinguish changes the params so that requests can meet each validation, and violate it.
func (f *firstTests) distinguish() error {
	take := func(sj *requestKind, goals []solve.Goal) bool {
		return f.solver.Each(f.ctx, f.withParams(sj.base), goals, true, func(st *solve.State) bool {
			f.param = st.Documents[solve.Params]
			return true
		})
	}
	each := func(goals []solve.Goal) (found bool, err error) {
		for _, sj := range f.subjects {
			if err := f.begin(sj); err != nil {
				return false, err
			}
			if sj.base != nil && take(sj, goals) {
				return true, nil
			}
		}
		return false, nil
	}
	for i, e := range f.validations {
		if e == nil {
			continue
		}
		if _, err := each(append([]solve.Goal{{Expression: e}}, f.goals(i, func(int) bool { return false })...)); err != nil {
			return err
		}
	}
	for _, e := range f.mutationsOf {
		if e == nil {
			continue
		}
		_, there := present(e)
		if _, err := each(append(f.goals(-1, func(int) bool { return false }), there...)); err != nil {
			return err
		}
	}
	// The params stay if requests can meet all validations with them.
	all := f.goals(-1, func(int) bool { return true })
	made := *f.param
	kept := made
	kept.Fixed = true
	f.param = &kept
	found, err := each(all)
	if f.param = &made; found || err != nil {
		return err
	}
	_, err = each(all)
	return err
}

// store stores the params that were made. why is the reason if the API rejects them.
func (f *firstTests) store(kind *offline.Kind) (why string, err error) {
	for range maxRepairs {
		u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(f.param.Sent)}
		refused, _, err := f.stage.Load(f.ctx, metav1.FieldValidationStrict, []*unstructured.Unstructured{u})
		if err != nil {
			return "", err
		}
		if len(refused) == 0 {
			if err := f.stage.CaughtUp(f.ctx); err != nil {
				return "", err
			}
			kept, err := f.stage.Get(f.ctx, kind, u.GetNamespace(), u.GetName())
			if err != nil || kept == nil {
				return "its params were not stored", err
			}
			f.documents = []map[string]any{f.param.Sent}
			f.param = &solve.Document{Sent: f.param.Sent, Seen: kept.Object, Schema: f.param.Schema, Fixed: true}
			for _, sj := range f.subjects {
				if sj.base != nil {
					sj.base = f.withParams(sj.base)
				}
			}
			return "", nil
		}
		why = refused[0].Status.Message
		st := &solve.State{Documents: map[string]*solve.Document{solve.Params: f.param}}
		var out *solve.State
		if d := refused[0].Status.Details; d != nil {
			for _, c := range d.Causes {
				if path := fieldPath(c.Field); len(path) > 0 && c.Type == metav1.CauseTypeFieldValueRequired {
					out = st.Require(solve.Params, path, c.Message)
				}
			}
		}
		if out == nil {
			break
		}
		f.param = out.Documents[solve.Params]
	}
	return "no params were found that the API accepts (" + shorten(why) + "); add some", nil
}
