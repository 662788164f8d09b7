package dispatch

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// canned is a Caller that answers at once, so that only the dispatcher is measured.
type canned struct{ response review.Response }

func (c *canned) Call(_ context.Context, inv *call.Invocation) (*review.Response, *call.Error) {
	r := c.response
	r.UID = inv.UID
	return &r, nil
}

// BenchmarkRun measures a pass without the network: conversion, encoding, patching, the record and
// its readers.
func BenchmarkRun(b *testing.B) {
	for _, size := range []int{1, 100} {
		for _, hooks := range []int{1, 5} {
			for _, answer := range []string{"allow", "patch"} {
				b.Run(fmt.Sprintf("kilobytes=%d/hooks=%d/%s", size, hooks, answer), func(b *testing.B) {
					f := newFixture(b)
					c := &canned{review.Response{Allowed: true}}
					if answer == "patch" {
						c.response.Patch = []byte(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`)
						c.response.PatchType = review.PatchTypeJSONPatch
					}
					d := f.dispatcher(b, registration.Mutating, func(o *Options) { o.Caller, o.Publisher, o.Serial = c, &trace.Publisher{}, true })
					var steps []plan.Candidate
					for i := range hooks {
						steps = append(steps, f.hook(registration.Mutating, fmt.Sprintf("a.x.y%d", i)))
					}
					numbered(steps...)
					object := sized(b, size)
					original := object.Object
					b.ReportAllocs()
					for b.Loop() {
						object.Object = original
						if err := f.run(b.Context(), d, attributes(admission.Create, object, nil, false), steps); err != nil {
							b.Fatal(err)
						}
					}
					if got := object.GetLabels()["a"] == "b"; got != (answer == "patch") {
						b.Fatalf("labels: %v", object.GetLabels())
					}
				})
			}
		}
	}
}

// sized returns a widget of the given number of kilobytes.
func sized(b *testing.B, kilobytes int) *unstructured.Unstructured {
	var items []string
	for i := range kilobytes * 10 {
		items = append(items, fmt.Sprintf(`{"name":"item-%04d","value":"%s"}`, i, strings.Repeat("x", 72)))
	}
	return widget(b, `"items":[`+strings.Join(items, ",")+`]`)
}
