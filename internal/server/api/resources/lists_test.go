package resources

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

// S27.14: a strategic merge patch with too many pairs of list elements is refused before it is applied. Other patches
// are applied.
func TestStrategicPatchesCompareFewElements(t *testing.T) {
	e := pods(t)
	e.Scope.MaxRequestBodyBytes = 3 << 20
	env := func(n int) string {
		return `{"spec":{"containers":[{"name":"one","env":[` + strings.TrimSuffix(strings.Repeat(`{"name":"a"},`, n), ",") + `]}]}}`
	}
	for elements, want := range map[int]int{fewElements / 2: 200, 2 * fewElements: 200, 10_000: 413, 200_000: 413} {
		got := send(t, e.patch(onePod{}, admission.NewChainHandler()), "pod", "", "application/strategic-merge-patch+json", strings.NewReader(env(elements)))
		if got.Code != want {
			t.Errorf("%d elements: %d %.200s, want %d", elements, got.Code, got.Body, want)
		}
	}
}

func TestListElements(t *testing.T) {
	for text, want := range map[string][2]int{
		`{"a":[1,2,{"b":[1,"],[",3,4]}],"c":{"d":1,"e":2}}`: {7, 4},
		`[]`: {1, 1}, `{}`: {0, 0}, `]},"\`: {0, 0}, ``: {0, 0},
	} {
		if elements, longest := listElements([]byte(text)); [2]int{elements, longest} != want {
			t.Errorf("%s has %d elements, at most %d in a list, want %v", text, elements, longest, want)
		}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Env: make([]corev1.EnvVar, 7)}}}}
	pod.Annotations = map[string]string{"a": "bc"}
	if got := longestList(reflect.ValueOf(pod)); got != 7 {
		t.Errorf("the longest list of a pod has %d elements, want 7", got)
	}
}
