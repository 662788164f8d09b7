package admission

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/test/hooktest"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// soften turns off the enforcement of some objects or of single webhooks.
func (r random) soften(objects []runtime.Object) {
	for _, o := range objects {
		if _, ok := o.(*v1alpha1.InitializerConfiguration); ok || r.in(2) {
			continue
		}
		m, err := meta.Accessor(o)
		if err != nil {
			panic(err)
		}
		value := pick(r, "Warn", "Audit", "Deny")
		if names := webhookNames(o); len(names) > 0 && r.in(2) {
			value = pick(r, names...) + "=" + value
		}
		annotations := map[string]string{registration.EnforcementAnnotation: value}
		switch {
		case r.in(6):
			annotations[registration.RolloutAnnotation] = pick(r, "0%", "100%", "50%")
		case r.in(6):
			annotations[registration.RolloutAnnotation] = "team=red"
		}
		m.SetAnnotations(annotations)
	}
}

func webhookNames(o runtime.Object) []string {
	entries, err := registration.Entries(o)
	if err != nil {
		panic(err)
	}
	var names []string
	for _, e := range entries {
		if e.Name != "" {
			names = append(names, e.Name)
		}
	}
	return names
}

// hard returns the enforced part of some objects, if there is no partial rollout.
func hard(objects []runtime.Object) []runtime.Object {
	modes := map[string]registration.Mode{}
	for _, o := range objects {
		switch p := o.(type) {
		case *v1.ValidatingAdmissionPolicy:
			modes["v"+p.Name] = registration.Mode(p.Annotations[registration.EnforcementAnnotation])
		case *v1.MutatingAdmissionPolicy:
			modes["m"+p.Name] = registration.Mode(p.Annotations[registration.EnforcementAnnotation])
		}
	}
	soft := func(policy string, m metav1.Object) bool {
		mode := registration.Mode(m.GetAnnotations()[registration.EnforcementAnnotation])
		if mode == "" {
			mode = modes[policy]
		}
		return mode.Soft()
	}
	var list []runtime.Object
	for _, o := range objects {
		o = o.DeepCopyObject()
		m, err := meta.Accessor(o)
		if err != nil {
			panic(err)
		}
		of, mode, single := strings.Cut(m.GetAnnotations()[registration.EnforcementAnnotation], "=")
		if !single {
			of, mode = "", of
		}
		gone := func(name string) bool {
			return (of == "" || of == name) && registration.Mode(mode).Soft()
		}
		switch c := o.(type) {
		case *v1.ValidatingAdmissionPolicyBinding:
			if soft("v"+c.Spec.PolicyName, c) {
				continue
			}
		case *v1.MutatingAdmissionPolicyBinding:
			if soft("m"+c.Spec.PolicyName, c) {
				continue
			}
		case *v1.MutatingWebhookConfiguration:
			idle(c.Webhooks, func(w *v1.MutatingWebhook) {
				if gone(w.Name) {
					w.Rules = nil
				}
			})
		case *v1.ValidatingWebhookConfiguration:
			idle(c.Webhooks, func(w *v1.ValidatingWebhook) {
				if gone(w.Name) {
					w.Rules = nil
				}
			})
		case *v1beta1.MutatingWebhookConfiguration:
			idle(c.Webhooks, func(w *v1beta1.MutatingWebhook) {
				if gone(w.Name) {
					w.Rules = nil
				}
			})
		case *v1beta1.ValidatingWebhookConfiguration:
			idle(c.Webhooks, func(w *v1beta1.ValidatingWebhook) {
				if gone(w.Name) {
					w.Rules = nil
				}
			})
		case *v1alpha1.ExternalAdmissionHookConfiguration:
			idle(c.ExternalAdmissionHooks, func(h *v1alpha1.ExternalAdmissionHook) {
				if gone(h.Name) {
					h.Rules = nil
				}
			})
		}
		m.SetAnnotations(nil)
		list = append(list, o)
	}
	return list
}

// idle edits elements so that they match nothing. Messages name webhooks by their index, which
// stays.
func idle[T any](list []T, edit func(*T)) {
	for i := range list {
		edit(&list[i])
	}
}

// opinions are webhooks that reject, change, fail or allow, each always in the same way.
func opinions(w http.ResponseWriter, request *http.Request) {
	var review struct {
		APIVersion string `json:"apiVersion"`
		Request    *struct {
			UID types.UID `json:"uid"`
		} `json:"request"`
	}
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h := fnv.New32a()
	fmt.Fprint(h, request.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	n := h.Sum32() % 6
	if review.Request == nil {
		fmt.Fprintf(w, `{"status":{"allowed":%t}}`, n > 2)
		return
	}
	response := `"allowed":true`
	switch n {
	case 0:
		response = `"allowed":false,"status":{"message":"no"}`
	case 1:
		response = `"allowed":true,"patchType":"JSONPatch","patch":"bm8="`
	case 2:
		http.Error(w, "broken", http.StatusInternalServerError)
		return
	case 3, 4:
		if strings.Contains(request.URL.Path, registration.MutatingKind) {
			// [{"op":"add","path":"/metadata/annotations","value":{"hook":"N"}}]
			patch, err := json.Marshal([]byte(fmt.Sprintf(`[{"op":"add","path":"/metadata/annotations","value":{"hook":"%d"}}]`, h.Sum32())))
			if err != nil {
				panic(err)
			}
			response = `"allowed":true,"patchType":"JSONPatch","patch":` + string(patch)
		}
	}
	fmt.Fprintf(w, `{"apiVersion":%q,"kind":"AdmissionReview","response":{"uid":%q,%s}}`, review.APIVersion, review.Request.UID, response)
}

// S28.2, S28.7: a request has the same result with and without webhooks and policies that are not
// enforced: the same object, or the same rejection.
func TestSoftIsAsIfItDidNotExist(t *testing.T) {
	s := hooktest.New(t)
	p := newProphet(t, s, "soft")
	for _, kind := range []string{registration.MutatingKind, registration.ValidatingKind, registration.ExternalKind} {
		for _, name := range configurations {
			for i := range maxHooks {
				s.Serve(hookPath("soft", kind, name, i), opinions)
			}
		}
	}
	var stored, rejected, spared, changes, differ int
	sets := *propertySets
	if sets == 0 {
		sets = uint64(speed.Of(someSets, randomSets))
	}
	for seed := range sets / 4 {
		r := newRandom(seed + 1)
		objects := append(append(r.registrations(p.base, p.ca, p.prefix), r.policies()...), r.mutatingPolicies()...)
		r.soften(objects)
		for _, o := range objects {
			// TestSharesOfNamespaces covers shares.
			if m, err := meta.Accessor(o); err == nil && m.GetAnnotations() != nil {
				delete(m.GetAnnotations(), registration.RolloutAnnotation)
			}
		}
		type end struct {
			Object runtime.Object
			Err    string
		}
		run := func(objects []runtime.Object) (end, *trace.Trace) {
			snap := snapshot.Compile(snapshot.Registrations{Objects: objects, Revision: fmt.Sprint(seed)})
			p.snapshots.Store(snap)
			r := newRandom(seed + 1)
			a, err := r.attributes()
			if err != nil {
				t.Fatal(err)
			}
			followed := trace.New()
			ctx := klog.NewContext(trace.NewContext(t.Context(), followed), klog.Logger{})
			chain := Chain(p.chain(r, p.eager)...)
			err = chain.Admit(ctx, a, catalogueInterfaces)
			if err == nil {
				err = chain.Validate(ctx, a, catalogueInterfaces)
			}
			if err != nil {
				return end{Err: err.Error()}, followed
			}
			return end{Object: a.GetObject()}, followed
		}
		want, _ := run(hard(objects))
		got, followed := run(objects)
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("seed %d (-without +with):\n%s\n%s", seed, diff, traceText(followed))
			if differ++; differ > 3 {
				t.FailNow()
			}
		}
		if got.Err != "" {
			rejected++
		} else {
			stored++
		}
		for _, run := range runs(followed) {
			for i := range run.Calls {
				if c := &run.Calls[i]; c.Spared() {
					spared++
				} else if len(c.WouldPatch) > 0 {
					changes++
				}
			}
			for i := range run.Judgements {
				for k := range run.Judgements[i].Consequences {
					if run.Judgements[i].Consequences[k].Spared {
						spared++
					}
				}
			}
		}
	}
	t.Logf("%d requests stored, %d rejected, %d rejections and %d changes spared", stored, rejected, spared, changes)
	if stored == 0 || rejected == 0 || spared == 0 || changes == 0 {
		t.Error("the random sets lack something")
	}
}
