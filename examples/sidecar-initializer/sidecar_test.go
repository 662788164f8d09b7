package main

import (
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/initializer"
)

func TestInject(t *testing.T) {
	const image = "registry.example.com/sidecar:1.0"
	for _, test := range []struct {
		name, annotation string
		containers       string
		want             string
		code             int32
	}{
		{name: "a sidecar is added", containers: "[{name: web, image: web}]", want: "[{name: web, image: web}, {name: sidecar, image: " + image + "}]"},
		{name: "once", containers: "[{name: web, image: web}, {name: sidecar, image: mine}]", want: "[{name: web, image: web}, {name: sidecar, image: mine}]"},
		{name: "unless it is not wanted", annotation: "false", containers: "[{name: web, image: web}]", want: "[{name: web, image: web}]"},
		{name: "or must not be", annotation: "never", containers: "[]", code: 403},
	} {
		t.Run(test.name, func(t *testing.T) {
			deployment := &unstructured.Unstructured{}
			text := "{metadata: {name: web, annotations: {sidecar.gatehouse.dev/inject: \"" + test.annotation + "\"}}, spec: {template: {spec: {containers: " + test.containers + "}}}}"
			if err := yaml.Unmarshal([]byte(text), &deployment.Object); err != nil {
				t.Fatal(err)
			}
			err := inject("sidecar", image)(t.Context(), deployment)
			var failure *initializer.Failure
			if test.code != 0 {
				if !errors.As(err, &failure) || failure.Status.Code != test.code {
					t.Fatalf("error %v, want a failure with code %d", err, test.code)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var want []any
			if err := yaml.Unmarshal([]byte(test.want), &want); err != nil {
				t.Fatal(err)
			}
			got, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParse(t *testing.T) {
	for _, args := range [][]string{{"extra"}, {"-workers", "0"}, {"-nonsense"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}
