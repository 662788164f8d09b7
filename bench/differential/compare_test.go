package main

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"
)

func TestCompareIgnoresWhatNoTwoServersShare(t *testing.T) {
	object := func(uid, version, time, manager string) answer {
		return answer{Code: http.StatusOK, Body: normalize(map[string]any{
			"metadata": map[string]any{
				"uid": uid, "resourceVersion": version, "creationTimestamp": time,
				"managedFields": []any{
					map[string]any{"manager": manager, "operation": "Update", "time": time},
					map[string]any{"manager": "a", "operation": "Apply", "time": time},
				},
			},
			"spec": map[string]any{"clusterIP": "10.0.0." + version, "ports": []any{map[string]any{"nodePort": 30000.0 + float64(len(uid))}}},
		})}
	}
	kube := object("0a4ee4cc-0000-4000-8000-000000000000", "7", "2026-01-01T00:00:00Z", "kube-apiserver")
	gatehouse := object("1b4ee4cc-0000-4000-8000-000000000001", "8", "2026-01-02T00:00:00Z", "gatehouse")
	if diff := cmp.Diff([]difference(nil), compare(kube, gatehouse)); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
}

func TestCompareFindsWhatDiffers(t *testing.T) {
	kube := answer{Code: 201, ContentType: jsonType, Body: map[string]any{
		"same": "x", "metadata": map[string]any{"labels": map[string]any{"a": "b"}}, "list": []any{"1", "2"},
	}}
	gatehouse := answer{Code: 200, ContentType: jsonType, Warnings: []string{"w"}, Body: map[string]any{
		"same": "x", "metadata": map[string]any{"labels": map[string]any{"a": "c"}}, "list": []any{"1"}, "more": true,
	}}
	want := []difference{
		{Path: "code", Kube: 201, Gatehouse: 200},
		{Path: "warnings", Kube: []string(nil), Gatehouse: []string{"w"}},
		{Path: "body.list", Kube: []any{"1", "2"}, Gatehouse: []any{"1"}},
		{Path: "body.metadata.labels.a", Kube: "b", Gatehouse: "c"},
		{Path: "body.more", Gatehouse: true},
	}
	if diff := cmp.Diff(want, compare(kube, gatehouse)); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
}

func TestNormalizeKeepsThatAValueIsMissing(t *testing.T) {
	with, without := map[string]any{"resourceVersion": "5"}, map[string]any{"resourceVersion": ""}
	want := []difference{{Path: "body.resourceVersion", Kube: "<version>", Gatehouse: ""}}
	if diff := cmp.Diff(want, compare(answer{Body: normalize(with)}, answer{Body: normalize(without)})); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
}

// Every case must be readable, and the steps of every kind must have paths of its group and version.
func TestCasesAreReadable(t *testing.T) {
	kinds, err := loadKinds()
	if err != nil {
		t.Fatal(err)
	}
	if len(kinds) < 60 {
		t.Errorf("%d kinds, want all built-in ones", len(kinds))
	}
	for _, k := range kinds {
		if len(k.steps()) < 50 {
			t.Errorf("%s has %d steps", k.path(), len(k.steps()))
		}
	}
	scripts, err := loadScripts()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scripts {
		if _, err := s.steps(); err != nil {
			t.Error(err)
		}
	}
	for _, file := range []string{knownFile, knownOfWebhooks} {
		if _, err := loadKnown(file); err != nil {
			t.Error(err)
		}
	}
}

// Comparisons continue after the panic of a handler.
func TestPanicsOfServersAreAnswers(t *testing.T) {
	reset := &url.Error{Op: "Post", Err: http2.StreamError{StreamID: 1, Code: http2.ErrCodeInternal}}
	if a, err := broken(reset); err != nil || a.Code != http.StatusInternalServerError {
		t.Errorf("%v: %+v, %v", reset, a, err)
	} else if found := compare(a, answer{Code: http.StatusCreated, Audit: map[string]any{"a": "b"}}); len(found) != 3 {
		t.Errorf("differences from another answer: %+v", found)
	}
	refused := &url.Error{Op: "Post", Err: http2.StreamError{StreamID: 1, Code: http2.ErrCodeRefusedStream}}
	if _, err := broken(refused); err != refused {
		t.Errorf("%v: %v", refused, err)
	}
}
