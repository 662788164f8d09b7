package customresources

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func BenchmarkLookup(b *testing.B) {
	e := newEnv(b)
	e.define(widgets)
	gvr := groupVersion{Group: "example.com", Version: "v1"}.WithResource("widgets")
	b.ReportAllocs()
	for b.Loop() {
		endpoint, done := e.Lookup(gvr, "status")
		if endpoint == nil {
			b.Fatal("not found")
		}
		done()
	}
}

func BenchmarkDefine(b *testing.B) {
	e := newEnv(b)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict([]byte(widgets), crd); err != nil {
		b.Fatal(err)
	}
	crd.Spec.Names.ListKind = "WidgetList"
	crd.Status.AcceptedNames = crd.Spec.Names
	apihelpers.SetCRDCondition(crd, apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue})
	b.ReportAllocs()
	for b.Loop() {
		d, err := e.Server.define(crd, nil)
		if err != nil {
			b.Fatal(err)
		}
		d.close()
	}
}

func BenchmarkList(b *testing.B) {
	for _, version := range []string{"v1", "v1beta1"} {
		b.Run("version="+version+"/objects=500", func(b *testing.B) {
			e := newEnv(b)
			e.define(widgets)
			for i := range 500 {
				e.must(201, "POST", widgetsPath, widget(fmt.Sprintf("w%d", i), "{size: 1}"))
			}
			path := strings.Replace(widgetsPath, "v1", version, 1) + "?resourceVersion=0"
			b.ReportAllocs()
			for b.Loop() {
				if r := e.do("GET", path, "", "Accept", "application/json"); len(r.at("items").([]any)) != 500 {
					b.Fatalf("%s", r.raw)
				}
			}
		})
	}
}
