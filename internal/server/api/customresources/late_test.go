package customresources

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// idleKeeper is a keeper whose rounds only the test makes.
func idleKeeper() *keeper { return &keeper{interval: time.Hour} }

func TestWhatIsLateIsBuiltOnceForAllWhoNeedItAtTheSameTime(t *testing.T) {
	k := idleKeeper()
	defer k.end()
	var builds atomic.Int32
	l := newLate(k, 1, func() (int32, error) { return builds.Add(1), nil })
	if builds.Load() != 0 {
		t.Fatal("it was built before somebody needed it")
	}
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if got, err := l.get(); got != 1 || err != nil {
				t.Errorf("got %d, %v", got, err)
			}
		})
	}
	group.Wait()
}

// A value that was not needed for a round is dropped; a value that is needed repeatedly is kept
// longer.
func TestWhatIsLateIsDroppedWhenItIsNotNeeded(t *testing.T) {
	k := idleKeeper()
	defer k.end()
	builds := 0
	l := newLate(k, 1, func() (int, error) { builds++; return builds, errors.New("as always") })
	for life := range 3 {
		if got, err := l.get(); got != life+1 || err == nil {
			t.Fatalf("life %d: got %d, %v", life, got, err)
		}
		// The round in which the value was needed does not count.
		for round := range 1 + 1<<life {
			if l.current.Load() == nil {
				t.Fatalf("life %d: it was dropped after %d rounds", life, round)
			}
			k.round()
		}
		if l.current.Load() != nil {
			t.Fatalf("life %d: it is kept", life)
		}
		if k.next != nil || len(k.kept) != 0 {
			t.Fatalf("life %d: the keeper goes on without anything to keep", life)
		}
	}
	l.get()
	for range 10 * maxPatience {
		l.get()
		k.round()
	}
	if builds != 4 {
		t.Errorf("it was built %d times, although it was in use", builds)
	}
}

// A request that needs a value while the keeper drops it still gets the value.
func TestWhatIsLateIsThereWhileItIsDropped(t *testing.T) {
	k := idleKeeper()
	defer k.end()
	var builds atomic.Int64
	l := newLate(k, 1, func() (*int64, error) { n := builds.Add(1); return &n, nil })
	stop := make(chan struct{})
	var rounds sync.WaitGroup
	rounds.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				k.round()
			}
		}
	})
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			for range 2000 {
				if got, err := l.get(); err != nil || got == nil || *got < 1 {
					t.Errorf("got %v, %v", got, err)
				}
			}
		})
	}
	users.Wait()
	close(stop)
	rounds.Wait()
}

// rich is a CRD with every feature of schemas.
const rich = `
spec:
  group: example.com
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        type: object
        description: "A description with \"quotes\" and ünicode."
        required: [spec]
        x-kubernetes-validations: [{rule: "has(self.spec)", message: m, messageExpression: "'x'", reason: FieldValueInvalid, fieldPath: .spec, optionalOldSelf: true}]
        properties:
          spec:
            type: object
            default: {a: 1, b: [true, null, "x", 1.5], c: {}}
            properties:
              number: {type: number, minimum: 0.5, maximum: 2, multipleOf: 0.5, exclusiveMinimum: true, default: 0}
              text: {type: string, enum: [a, "", "null"], minLength: 0, maxLength: 3, pattern: "^a*$", format: date, default: ""}
              list: {type: array, minItems: 0, items: {type: string}, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k]}
              map: {type: object, additionalProperties: {type: integer}, x-kubernetes-map-type: atomic}
              any: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}], nullable: true}
              whole: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
              off: {type: object, additionalProperties: false}
              none: {type: boolean, default: false, not: {enum: [true]}, externalDocs: {url: u}, example: {x: [1]}}
  - name: v2
  - name: v3
    schema: {}
  - name: v4
    schema: {openAPIV3Schema: {type: object}}
`

func richDefinition(t testing.TB) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict([]byte(rich), crd); err != nil {
		t.Fatal(err)
	}
	crd.Name, crd.UID, crd.Generation = "x.example.com", types.UID("1"), 3
	return crd
}

func TestSchemasArePackedWithoutLoss(t *testing.T) {
	want := richDefinition(t)
	packed := richDefinition(t)
	if err := pack(packed, nil); err != nil {
		t.Fatal(err)
	}
	for i, is := range []bool{true, false, true, true} {
		if isPacked(packed.Spec.Versions[i].Schema) != is {
			t.Errorf("version %d: packed is not %t", i, is)
		}
	}
	again := packed.DeepCopy()
	if err := pack(again, nil); err != nil || !reflect.DeepEqual(again, packed) {
		t.Errorf("packed twice, it is another: %v", err)
	}
	// The schemas of a packed form are cached for a while.
	for _, known := range []bool{true, false} {
		if !known {
			wholes.Clear()
		}
		got, err := unpacked(packed)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("unpacked, known %t (-want +got):\n%s", known, diff)
		}
	}
	if !isPacked(packed.Spec.Versions[0].Schema) {
		t.Error("unpacking changed the definition")
	}
	if same, err := unpacked(want); err != nil || same != want {
		t.Errorf("without packed schemas: another definition, %v", err)
	}
}

// A CRD in a new state shares its packed schemas with the old one if they are the same.
func TestPackedSchemasAreShared(t *testing.T) {
	before := richDefinition(t)
	if err := pack(before, nil); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		change func(*apiextensionsv1.CustomResourceDefinition)
		shared bool
	}{
		{"another status", func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Status.StoredVersions = []string{"v1"} }, true},
		{"another generation", func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Generation++
			crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Description = "other"
		}, false},
		{"another definition of that name", func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.UID = "2"
			crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Description = "other"
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			crd := richDefinition(t)
			tc.change(crd)
			want := crd.DeepCopy()
			if err := pack(crd, before); err != nil {
				t.Fatal(err)
			}
			if shared := crd.Spec.Versions[0].Schema == before.Spec.Versions[0].Schema; shared != tc.shared {
				t.Errorf("shared: %t", shared)
			}
			if got, err := unpacked(crd); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("unpacked it is another: %v", err)
			}
		})
	}
}

// A kind costs only its packed definition until it is used; then all clients get the same verdicts,
// whichever client uses the kind first, and also after the built parts were dropped.
func TestKindsAreBuiltByTheirFirstUse(t *testing.T) {
	e := newEnv(t)
	e.define(widgets)
	d := (*e.snapshot.Load())[e.key("widgets")].definition
	if d.made.Load() != nil {
		t.Error("the kind is built before it is used")
	}
	use := func(life string) {
		var group sync.WaitGroup
		for i := range 16 {
			group.Go(func() {
				path := []string{widgetsPath, betaPath}[i%2]
				version := []string{"v1", "v1beta1"}[i%2]
				name := fmt.Sprintf("%s-%d", life, i)
				good := strings.Replace(widget(name, "{size: 1, unknown: 1}"), "example.com/v1", "example.com/"+version, 1)
				if r := e.do("POST", path, good); r.code != http.StatusCreated || r.at("spec", "unknown") != nil {
					t.Errorf("%s: %d %s", name, r.code, r.raw)
				}
				if r := e.do("POST", widgetsPath, widget(name+"-bad", `{size: "x"}`)); r.code != http.StatusUnprocessableEntity {
					t.Errorf("%s: %d %s", name, r.code, r.raw)
				}
				apply := "apiVersion: example.com/" + version + "\nkind: Widget\nspec: {color: blue}\n"
				if r := e.do("PATCH", path+"/"+name+"?fieldManager=m&force=true", apply, "Content-Type", applyPatch); r.code != http.StatusOK || r.at("spec", "color") != "blue" {
					t.Errorf("%s: %d %s", name, r.code, r.raw)
				}
				if r := e.do("GET", path, ""); r.code != http.StatusOK {
					t.Errorf("list: %d %s", r.code, r.raw)
				}
			})
		}
		group.Wait()
	}
	use("first")
	for range maxPatience {
		e.keeper.round()
	}
	if len(e.keeper.kept) != 0 || d.whole.current.Load() != nil || d.schemas.byVersion.current.Load() != nil {
		t.Error("what nobody uses is kept")
	}
	use("second")
}

// Requests, updates of the schema and deletions meet while a kind is built and dropped. Each
// request gets an answer by one of the states of the CRD; no part of a deleted CRD stays.
func TestKindsAreBuiltWhileTheyChangeAndGo(t *testing.T) {
	e := newEnv(t)
	stop := make(chan struct{})
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				r := e.do("POST", widgetsPath, widget(fmt.Sprintf("w%d-%d", i, n), "{size: 1}"))
				switch r.code {
				case http.StatusCreated, http.StatusNotFound, http.StatusForbidden, http.StatusTooManyRequests:
				default:
					t.Errorf("%d %s", r.code, r.raw)
					return
				}
			}
		})
	}
	group.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				e.keeper.round()
				e.do("GET", betaPath, "")
			}
		}
	})
	for range 3 {
		e.define(widgets)
		for i := range 3 {
			e.update("widgets.example.com", func(spec *apiextensionsSpec) {
				spec.Versions[0].Schema.OpenAPIV3Schema.Description = fmt.Sprint("state ", i)
			})
		}
		e.must(200, "DELETE", definitionsPath+"/widgets.example.com", "")
		e.until("widgets.example.com", nil)
		if keys := e.keys("/"); len(keys) != 0 {
			t.Errorf("left in etcd: %q", keys)
		}
	}
	close(stop)
	group.Wait()
	e.await(func() bool { return len(*e.snapshot.Load()) == 0 })
}

// A definition that is closed before its first use is not built.
func TestAClosedDefinitionIsNotBuilt(t *testing.T) {
	d := &definition{}
	d.close()
	if _, err := d.open(); !errors.Is(err, errClosed) {
		t.Errorf("got %v", err)
	}
}

// Controllers write the status of CRDs without having their schemas in memory. Admission
// and the managed fields see whole definitions.
func TestTheStatusIsWrittenWithSchemas(t *testing.T) {
	e := newEnv(t)
	var without []string
	e.admit.set(nil)
	crd := e.define(widgets)
	before := crd.Spec.DeepCopy()
	for i := range before.Versions {
		if s := before.Versions[i].Schema; s == nil || isPacked(s) {
			without = append(without, before.Versions[i].Name)
		}
	}
	if without != nil {
		t.Errorf("without a schema: %q", without)
	}
	cached, err := e.definitions.Lister().Get(crd.Name)
	if err != nil {
		t.Fatal(err)
	}
	if !isPacked(cached.Spec.Versions[0].Schema) {
		t.Error("the definition is kept with its schemas")
	}
	for _, m := range crd.ManagedFields {
		if m.Subresource == "status" && strings.Contains(m.FieldsV1.GetRawString(), "f:spec") {
			t.Errorf("%s owns fields of the spec: %s", m.Manager, m.FieldsV1.GetRawString())
		}
		if m.Subresource == "" && !strings.Contains(m.FieldsV1.GetRawString(), "f:versions") {
			t.Errorf("%s lost fields of the spec: %s", m.Manager, m.FieldsV1.GetRawString())
		}
	}
}

// An update of the status computes managed fields without the spec: the managers are the same as if
// it read the spec, whatever the spec of the request is.
func TestAWriteOfTheStatusKeepsWhoManagesTheSpec(t *testing.T) {
	e := newEnv(t)
	name := e.define(widgets).Name
	path := definitionsPath + "/" + name
	update := e.must(http.StatusOK, "GET", path, "").body
	conditions, _, _ := unstructured.NestedSlice(update, "status", "conditions")
	for _, change := range []struct {
		value any
		path  []string
	}{
		{"Other", []string{"spec", "names", "kind"}},
		{[]any{}, []string{"spec", "versions"}},
		{append(conditions, map[string]any{"type": "Example", "status": "True", "reason": "Test", "message": "m", "lastTransitionTime": "2026-01-02T03:04:05Z"}), []string{"status", "conditions"}},
		{nil, []string{"metadata", "managedFields"}},
	} {
		if err := unstructured.SetNestedField(update, change.value, change.path...); err != nil {
			t.Fatal(err)
		}
	}
	data, err := json.Marshal(update)
	if err != nil {
		t.Fatal(err)
	}
	e.must(http.StatusOK, "PUT", path+"/status?fieldManager=updater", string(data))
	e.must(http.StatusOK, "PATCH", path+"/status?fieldManager=applier&force=true", `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"`+name+`"},
		"status":{"conditions":[{"type":"Applied","status":"True","reason":"Test","message":"m","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`,
		"Content-Type", "application/apply-patch+yaml")
	after := e.until(name, func(*apiextensionsv1.CustomResourceDefinition) bool { return true })
	if after.Spec.Names.Kind == "Other" || len(after.Spec.Versions) == 0 {
		t.Errorf("the write of the status changed the spec: %+v", after.Spec.Names)
	}
	manages := map[string]string{}
	for _, m := range after.ManagedFields {
		manages[m.Manager+"/"+m.Subresource] = m.FieldsV1.GetRawString()
	}
	for manager, want := range map[string]string{"updater/status": `"k:{\"type\":\"Example\"}"`, "applier/status": `"k:{\"type\":\"Applied\"}"`} {
		if got := manages[manager]; !strings.Contains(got, want) || strings.Contains(got, "f:spec") {
			t.Errorf("%s manages %s", manager, got)
		}
	}
	spec := 0
	for manager, fields := range manages {
		if strings.Contains(fields, `"f:versions"`) && strings.Contains(fields, `"f:kind"`) && strings.HasSuffix(manager, "/") {
			spec++
		}
	}
	if spec != 1 {
		t.Errorf("%d managers have the spec: %v", spec, manages)
	}
}
