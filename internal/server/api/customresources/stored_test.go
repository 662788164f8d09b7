package customresources

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"

	_ "github.com/gatehouse-dev/gatehouse/test/speed"
)

// through stores a CRD by a codec, and returns the CRD that is read again.
func through(t *testing.T, codec runtime.Codec, crd *apiextensions.CustomResourceDefinition) *apiextensions.CustomResourceDefinition {
	t.Helper()
	before := crd.DeepCopy()
	stored, err := runtime.Encode(codec, crd)
	if err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(before, crd) {
		t.Fatal("storing a definition changes the caller's")
	}
	read, err := runtime.Decode(codec, stored)
	if err != nil {
		t.Fatal(err)
	}
	return read.(*apiextensions.CustomResourceDefinition)
}

// sent returns a CRD as the server has it after a client sent it in protobuf.
func sent(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) *apiextensions.CustomResourceDefinition {
	t.Helper()
	internal := &apiextensions.CustomResourceDefinition{}
	data, err := crd.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	received := &apiextensionsv1.CustomResourceDefinition{}
	if err := received.Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	if err := scheme.Convert(received, internal, nil); err != nil {
		t.Skip(err)
	}
	return internal
}

// The stored encoding does not change a CRD: upstream stores JSON, this server protobuf.
func FuzzDefinitionsAreStoredAsInJSON(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		data := make([]byte, 4096)
		for i := range data {
			data[i] = byte(random.UintN(256))
		}
		f.Add(data)
	}
	json := codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion)
	f.Fuzz(func(t *testing.T, data []byte) {
		crd := &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "things.example.com"},
			Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Versions: make([]apiextensionsv1.CustomResourceDefinitionVersion, 2)},
		}
		fill := randfill.NewFromGoFuzz(data).NilChance(.6).NumElements(0, 2).MaxDepth(14).Funcs(
			func(j *apiextensionsv1.JSON, c randfill.Continue) {
				texts := []string{"", "null", "1", `"a"`, `{"a":[null]}`}
				j.Raw = []byte(texts[c.Intn(len(texts))])
			},
		)
		for i := range crd.Spec.Versions {
			fill.Fill(&crd.Spec.Versions[i].Schema)
		}
		internal := sent(t, crd)
		got, want := through(t, definitionCodec(), internal), through(t, json, internal)
		if !equality.Semantic.DeepEqual(got.Spec, want.Spec) {
			t.Errorf("protobuf (-) and JSON (+) differ:\n%.2000s", cmp.Diff(got.Spec, want.Spec))
		}
	})
}

// An object with additional properties is valid for a CRD that was sent in protobuf, with Go's zero
// value of allows; also if an earlier release stored the CRD.
func TestAdditionalPropertiesSentInProtobuf(t *testing.T) {
	crd := sent(t, &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"spec": {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"}}},
			}},
		}}},
	}})
	codec := definitionCodec().(storedCodec)
	var earlier bytes.Buffer
	if err := codec.Codec.Encode(crd, &earlier); err != nil {
		t.Fatal(err)
	}
	for name, stored := range map[string]func() (runtime.Object, error){
		"stored now":                   func() (runtime.Object, error) { return through(t, codec, crd), nil },
		"stored by an earlier release": func() (runtime.Object, error) { return runtime.Decode(codec, earlier.Bytes()) },
		"read by an earlier release": func() (runtime.Object, error) {
			data, err := runtime.Encode(codec, crd)
			if err != nil {
				return nil, err
			}
			return runtime.Decode(codec.Codec, data)
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := stored()
			if err != nil {
				t.Fatal(err)
			}
			spec := got.(*apiextensions.CustomResourceDefinition).Spec
			schema := spec.Validation
			if schema == nil {
				schema = spec.Versions[0].Schema
			}
			if either := schema.OpenAPIV3Schema.Properties["spec"].AdditionalProperties; !either.Allows || either.Schema == nil {
				t.Errorf("additionalProperties: %+v, want a schema and allows", either)
			}
		})
	}
}
