package rollout

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestWhatAStateMeans(t *testing.T) {
	state := func(version string, inForce bool, replicas ...bool) *unstructured.Unstructured {
		list := []any{}
		for _, in := range replicas {
			list = append(list, map[string]any{"name": "r", "address": "https://r", "inForce": in})
		}
		return &unstructured.Unstructured{Object: map[string]any{
			"registration": map[string]any{"resourceVersion": version}, "inForce": inForce, "replicas": list,
		}}
	}
	off := state("7", false, false)
	off.Object["replicas"].([]any)[0].(map[string]any)["off"] = true
	gone := apierrors.NewNotFound(States.GroupResource(), "x")
	for _, c := range []struct {
		name             string
		deleted          bool
		state            *unstructured.Unstructured
		err              error
		done, wait, fail string
	}{
		{name: "in force", state: state("7", true, true, true), done: "x is active on 2 servers, resourceVersion 7"},
		{name: "not everywhere", state: state("7", false, true, false), wait: "not yet active on r at https://r"},
		{name: "not everywhere, for good", state: off, wait: "not yet active on r at https://r, which enforces none of its kind"},
		{name: "not there", err: gone, fail: "no such registration"},
		{name: "no answer", err: errors.New("refused"), wait: "refused"},
		{name: "not allowed", err: apierrors.NewForbidden(States.GroupResource(), "x", nil), fail: "forbidden"},
		{name: "deleted, to be waited for", deleted: true, err: gone, done: "no server enforces x"},
		{name: "deleted, and enforced somewhere", deleted: true, state: state("", false, true, false), wait: "not yet active on r at https://r"},
		{name: "not deleted", deleted: true, state: state("7", true, true), wait: "it still exists"},
	} {
		done, wait, err := InForce("x", c.deleted, c.state, c.err)
		if done != c.done || wait != c.wait || (err == nil) != (c.fail == "") || err != nil && !strings.Contains(err.Error(), c.fail) {
			t.Errorf("%s: %q, %q, %v", c.name, done, wait, err)
		}
	}
}
