package v1alpha1

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"sigs.k8s.io/randfill"
)

// Random objects of every kind are unchanged after a copy and after encoding in JSON and in
// protobuf, and a copy shares no memory with the original.
func TestObjectsSurviveCopiesAndEncoding(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	binary := protobuf.NewSerializer(scheme, scheme)
	fill := randfill.NewWithSeed(1).NilChance(.3).NumElements(1, 3).Funcs(
		func(*metav1.FieldsV1, randfill.Continue) {},
		// Items of lists have no kind in protobuf.
		func(*metav1.TypeMeta, randfill.Continue) {},
		func(m *metav1.ManagedFieldsEntry, c randfill.Continue) { m.Manager = c.String(0) },
		func(m *metav1.Time, _ randfill.Continue) { *m = metav1.Unix(1e9, 0).Rfc3339Copy() },
	)
	for _, kind := range []string{
		"InitializerConfiguration", "InitializerConfigurationList",
		"ExternalAdmissionHookConfiguration", "ExternalAdmissionHookConfigurationList",
	} {
		t.Run(kind, func(t *testing.T) {
			for range 50 {
				obj, err := scheme.New(SchemeGroupVersion.WithKind(kind))
				if err != nil {
					t.Fatal(err)
				}
				fill.Fill(obj)
				obj.GetObjectKind().SetGroupVersionKind(SchemeGroupVersion.WithKind(kind))
				before, err := json.Marshal(obj)
				if err != nil {
					t.Fatal(err)
				}
				copied := obj.DeepCopyObject()
				if diff := cmp.Diff(obj, copied); diff != "" {
					t.Fatalf("copy differs (-want +got):\n%s", diff)
				}
				fill.NilChance(0).Fill(copied)
				if after, _ := json.Marshal(obj); !bytes.Equal(before, after) {
					t.Fatalf("writing to the copy changed the original:\n%s\n%s", before, after)
				}
				decoded, _, err := decoder.Decode(before, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				if again, _ := json.Marshal(decoded); !bytes.Equal(before, again) {
					t.Fatalf("JSON differs (-want +got):\n%s", cmp.Diff(string(before), string(again)))
				}
				data, err := runtime.Encode(binary, obj)
				if err != nil {
					t.Fatal(err)
				}
				if decoded, _, err = binary.Decode(data, nil, nil); err != nil {
					t.Fatal(err)
				}
				if again, _ := json.Marshal(decoded); !bytes.Equal(before, again) {
					t.Fatalf("protobuf differs (-want +got):\n%s", cmp.Diff(string(before), string(again)))
				}
			}
		})
	}
}

func TestCopyOfNothingIsNothing(t *testing.T) {
	for i, got := range []bool{
		(*InitializerConfiguration)(nil).DeepCopy() == nil,
		(*InitializerConfigurationList)(nil).DeepCopy() == nil,
		(*ExternalAdmissionHookConfiguration)(nil).DeepCopy() == nil,
		(*ExternalAdmissionHookConfigurationList)(nil).DeepCopy() == nil,
	} {
		if !got {
			t.Error(fmt.Sprint("kind ", i, ": the copy is not nil"))
		}
	}
}

// The protobuf of the client of Kubernetes 1.8 is read correctly; the test in
// bench/legacy runs that client itself.
func TestProtobufOf2017(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, data, want string }{
		{
			"InitializerConfiguration",
			"6b3873000a410a2561646d697373696f6e726567697374726174696f6e2e6b38732e696f2f7631616c706861311218496e697469616c697a6572436f6e666967" +
				"75726174696f6e123c0a160a046d65736812001a0022002a003200380042007a0012220a0d612e6578616d706c652e636f6d12110a04617070730a0012012a1a" +
				"04706f64731a002200",
			`{"kind":"InitializerConfiguration","apiVersion":"admissionregistration.k8s.io/v1alpha1","metadata":{"name":"mesh"},"initializers":[` +
				`{"name":"a.example.com","rules":[{"apiGroups":["apps",""],"apiVersions":["*"],"resources":["pods"]}]}]}`,
		},
		{
			"ExternalAdmissionHookConfiguration",
			"6b3873000a4b0a2561646d697373696f6e726567697374726174696f6e2e6b38732e696f2f7631616c70686131122245787465726e616c41646d697373696f6e" +
				"486f6f6b436f6e66696775726174696f6e12700a160a04686f6f6b12001a0022002a003200380042007a0012560a0d682e6578616d706c652e636f6d12110a09" +
				"0a026e731203737663120263611a001a2a0a064352454154450a0655504441544512180a00120276311a04706f64731a0a636f6e6669676d617073220649676e" +
				"6f72651a002200",
			`{"kind":"ExternalAdmissionHookConfiguration","apiVersion":"admissionregistration.k8s.io/v1alpha1","metadata":{"name":"hook"},"externalAdmissionHooks":[` +
				`{"name":"h.example.com","clientConfig":{"service":{"namespace":"ns","name":"svc"},"caBundle":"Y2E="},` +
				`"rules":[{"operations":["CREATE","UPDATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods","configmaps"]}],"failurePolicy":"Ignore"}]}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, err := hex.DecodeString(c.data)
			if err != nil {
				t.Fatal(err)
			}
			obj, _, err := protobuf.NewSerializer(scheme, scheme).Decode(data, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(obj)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("it reads differently (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProtobufThatIsWrong(t *testing.T) {
	for _, c := range []struct{ name, data, want string }{
		{"a list of initializers that is a number", "\x10\x01", "field Initializers: it has the wrong wire type"},
		{"a flag that is a text", "\x12\x05\xd2\x3e\x02no", "field Initializers: field Parallel: it has the wrong wire type"},
		{"a name that is cut off", "\x12\x03\x0a\x09x", "field Initializers: unexpected EOF"},
		{"metadata that is none", "\x0a\x01\xff", "field ObjectMeta: unexpected EOF"},
		{"a tag that is cut off", "\xff", "unexpected EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := (&InitializerConfiguration{}).Unmarshal([]byte(c.data))
			if err == nil || strings.ReplaceAll(err.Error(), "\u00a0", " ") != c.want {
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
}
