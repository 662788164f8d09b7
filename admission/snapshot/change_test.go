package snapshot

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// described lists everything in a snapshot that affects requests.
func described(s *Snapshot) []string {
	var lines []string
	for _, d := range registration.Sources() {
		for i, e := range s.Entries(d.Source) {
			line := fmt.Sprintf("%s %s %s %s", d.Kind, e, e.ConfigurationUID, e.ConfigurationVersion)
			if !d.Binds {
				line += fmt.Sprintf(" at %d", e.Position)
			}
			if e.Entry.Policy != nil {
				line += " " + e.Entry.Policy.Validations[0].Expression
			}
			if b := e.Entry.Binding; b != nil {
				line += fmt.Sprintf(" %s %v %v", b.PolicyName, b.Actions, e.NamespaceSelector)
				if p := s.Bound(e); p != nil {
					line += " is bound"
				}
				if s.Table(d.Source).Configuration(e.Configuration) != e {
					line += ", and not found by its name"
				}
			}
			if e.Bindings != nil {
				for k, g := range e.Bindings.Groups {
					line += fmt.Sprintf("; group %d, %s:", k, e.Bindings.Table().Entries()[k].NamespaceSelector)
					for _, b := range g.Bindings {
						line += " " + b.Configuration
					}
				}
			}
			lines = append(lines, fmt.Sprintf("%d %s", i, line))
		}
	}
	return append(lines, fmt.Sprint(found(s)))
}

// TestChangesGiveWhatCompilingAllGives changes registrations at random, and passes the changes to
// one Compiler and all objects to another.
func TestChangesGiveWhatCompilingAllGives(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		objects := map[id]apiruntime.Object{}
		list := func() (all []apiruntime.Object) {
			for _, o := range objects {
				all = append(all, o)
			}
			return all
		}
		var changing, comparing Compiler
		changing.Compile(Registrations{})
		version := 0
		for step := range 40 {
			update := Registrations{Partial: true}
			for range 1 + r.IntN(5) {
				version++
				c := Change{Source: registration.ValidatingBindings, Name: "b" + strconv.Itoa(r.IntN(12))}
				policy := "p" + strconv.Itoa(r.IntN(4))
				var match *v1.MatchResources
				if r.IntN(2) == 0 {
					match = &v1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"n": strconv.Itoa(r.IntN(2))}}}
				}
				b := validatingBinding(c.Name, strconv.Itoa(version), policy, match)
				b.Spec.ValidationActions = [][]v1.ValidationAction{{v1.Deny}, {v1.Warn, v1.Audit}}[r.IntN(2)]
				c.Object = b
				switch r.IntN(6) {
				case 0:
					c = Change{Source: registration.ValidatingPolicies, Name: policy, Object: validatingPolicy(policy, strconv.Itoa(version), "object.x == "+strconv.Itoa(version))}
				case 1:
					c = Change{Source: registration.Validating, Name: "w", Object: configuration("w", "w", strconv.Itoa(version), "h", "i")}
				}
				key := id{source: c.Source, name: c.Name}
				if r.IntN(3) == 0 {
					c.Object = nil
					delete(objects, key)
				} else {
					if r.IntN(4) == 0 {
						// Another object under the name.
						c.Object.(metav1.Object).SetUID(types.UID(strconv.Itoa(version)))
					}
					objects[key] = c.Object
				}
				update.Changes = append(update.Changes, c)
			}
			if r.IntN(8) == 0 {
				// The changes are not listed one by one, but the remaining objects are.
				update.Kept = []Kept{}
				update.Changes = nil
				for key, o := range objects {
					if _, known, ok := changing.compiledVersion(key); ok && known == o.(metav1.Object).GetResourceVersion() {
						update.Kept = append(update.Kept, Kept{key.source, key.name, known})
					} else {
						update.Changes = append(update.Changes, Change{key.source, key.name, o})
					}
				}
			}
			got := changing.Change(update)
			if got == nil {
				t.Fatalf("seed %d, step %d: the changes do not fit", seed, step)
			}
			if diff := cmp.Diff(described(Compile(Registrations{Objects: list()})), described(got)); diff != "" {
				t.Fatalf("seed %d, step %d (-all +changed):\n%s", seed, step, diff)
			}
			if diff := cmp.Diff(described(comparing.Compile(Registrations{Objects: list()})), described(got)); diff != "" {
				t.Fatalf("seed %d, step %d (-all again +changed):\n%s", seed, step, diff)
			}
		}
		// No data of deleted objects is kept.
		for key := range objects {
			changing.Change(Registrations{Partial: true, Changes: []Change{{Source: key.source, Name: key.name}}})
		}
		if n := len(changing.objects) + len(changing.bindings) + len(changing.bound) + len(changing.alike); n > 0 {
			t.Fatalf("seed %d: %d parts of nothing are kept", seed, n)
		}
	}
}

func TestChangesOfAnotherPastDoNotFit(t *testing.T) {
	var c Compiler
	c.Compile(Registrations{Objects: []apiruntime.Object{validatingPolicy("p", "5", "true")}})
	for _, kept := range []Kept{{registration.ValidatingPolicies, "p", "4"}, {registration.ValidatingPolicies, "q", "5"}, {registration.ValidatingBindings, "p", "5"}} {
		if c.Change(Registrations{Partial: true, Kept: []Kept{kept}}) != nil {
			t.Errorf("S11.8 a compiler that does not know %+v takes it for unchanged", kept)
		}
	}
	if s := c.Change(Registrations{Partial: true, Kept: []Kept{{registration.ValidatingPolicies, "p", "5"}}}); s == nil || len(s.Entries(registration.ValidatingPolicies)) != 1 {
		t.Error("what is unchanged does not fit")
	}
}

// crowd returns policies with a number of bindings each, as they are stored. own reports whether
// each binding has its own param.
func crowd(policies, bindings int, own bool) []apiruntime.Object {
	var list []apiruntime.Object
	metaOf := func(name string) metav1.ObjectMeta {
		uid := fmt.Sprintf("6f1a8e3c-5f0e-4a55-9d3e-%012d", len(list))
		return metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: strconv.Itoa(100000 + len(list))}
	}
	for p := range policies {
		policy := validatingPolicy(fmt.Sprintf("policy-%04d", p), "1", "true")
		policy.ObjectMeta = metaOf(policy.Name)
		list = append(list, policy)
		for k := range bindings {
			b := validatingBinding(fmt.Sprintf("binding-%04d-%03d", p, k), "1", policy.Name, nil)
			b.ObjectMeta = metaOf(b.Name)
			if own {
				deny := v1.DenyAction
				b.Spec.ParamRef = &v1.ParamRef{Name: b.Name, Namespace: "default", ParameterNotFoundAction: &deny}
			}
			list = append(list, b)
		}
	}
	return list
}

// live returns the live memory of the heap.
func live() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestABindingTakesLittleMemory measures the memory of a binding in a snapshot and its Compiler.
func TestABindingTakesLittleMemory(t *testing.T) {
	for _, tt := range []struct {
		name string
		own  bool
		most int
	}{
		{"bindings that differ in their name", false, 450},
		{"bindings with a param each", true, 1200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const policies, bindings = 100, 100
			var c Compiler
			c.Compile(Registrations{Objects: crowd(policies, 1, tt.own)})
			before := live()
			s := c.Compile(Registrations{Objects: crowd(policies, bindings+1, tt.own)})
			each := int(live()-before) / (policies * bindings)
			t.Logf("%d bytes a binding", each)
			if each > tt.most {
				t.Errorf("a binding takes %d bytes, want at most %d", each, tt.most)
			}
			runtime.KeepAlive(s)
			runtime.KeepAlive(&c)
		})
	}
}

// BenchmarkChange changes one binding among many. The cost depends on the bindings of its policy
// and on the list of policies.
func BenchmarkChange(b *testing.B) {
	for _, policies := range []int{10, 1000} {
		b.Run(fmt.Sprintf("bindings=%d", policies*100), func(b *testing.B) {
			objects := crowd(policies, 100, false)
			var c Compiler
			c.Compile(Registrations{Objects: objects})
			i := slices.IndexFunc(objects, func(o apiruntime.Object) bool { return o.(metav1.Object).GetName() == "binding-0005-050" })
			changed := objects[i].(*v1.ValidatingAdmissionPolicyBinding)
			version := 0
			b.ReportAllocs()
			for b.Loop() {
				version++
				again := *changed
				again.ResourceVersion = "v" + strconv.Itoa(version)
				s := c.Change(Registrations{Partial: true, Changes: []Change{{registration.ValidatingBindings, again.Name, &again}}})
				if s == nil || s.Table(registration.ValidatingBindings).Configuration(again.Name).ConfigurationVersion != again.ResourceVersion {
					b.Fatal("the change is not in the snapshot")
				}
			}
		})
	}
}
