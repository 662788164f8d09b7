package plugins_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"

	"github.com/gatehouse-dev/gatehouse/plugins"
)

// S9.22: the same pod is rejected with the same message each time: by the first limit range, with the minima
// and the maxima of each container in the order of resources.
func TestLimitRangerSaysTheSameEachTime(t *testing.T) {
	interfaces := apiadmission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)
	o := onCluster(t, "")
	p, err := plugins.New("LimitRanger", o)
	if err != nil {
		t.Fatal(err)
	}
	limits := func(name string) *corev1.LimitRange {
		most, least := corev1.ResourceList{}, corev1.ResourceList{}
		for _, r := range []corev1.ResourceName{"cpu", "memory", "ephemeral-storage", "example.com/gpu"} {
			most[r] = resource.MustParse("1")
			least[r] = resource.MustParse("1")
		}
		return &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
			Spec:       corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Min: least, Max: most}}},
		}
	}
	indexer := o.Informers.Core().V1().LimitRanges().Informer().GetIndexer()
	for _, name := range []string{"c", "a", "b"} {
		if err := indexer.Add(limits(name)); err != nil {
			t.Fatal(err)
		}
	}
	pod := &api.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: api.PodSpec{Containers: []api.Container{{Name: "c"}, {Name: "d", Resources: api.ResourceRequirements{Limits: api.ResourceList{"cpu": resource.MustParse("3")}}}}}}
	a := apiadmission.NewAttributesRecord(pod, nil, api.Kind("Pod").WithVersion("v1"), "ns", "p", api.Resource("pods").WithVersion("v1"), "",
		apiadmission.Create, &metav1.CreateOptions{}, false, nil)
	const no, none = "  No limit is specified", "  No request is specified"
	want := "is forbidden: [minimum cpu usage per Container is 1." + none + ", minimum ephemeral-storage usage per Container is 1." + none +
		", minimum example.com/gpu usage per Container is 1." + none + ", minimum memory usage per Container is 1." + none + ", maximum cpu usage per Container is 1." + no + ", maximum ephemeral-storage usage per Container is 1." + no +
		", maximum example.com/gpu usage per Container is 1." + no + ", maximum memory usage per Container is 1." + no
	// The errors of the second container follow; equal errors of both appear once.
	want += ", maximum cpu usage per Container is 1, but limit is 3]"
	for range 30 {
		err := p.(apiadmission.ValidationInterface).Validate(t.Context(), a, interfaces)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("%v, want %s", err, want)
		}
	}
}
