package plugins_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/compatibility"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/plugins"
)

// BenchmarkATracedPod measures the built-in admission plugins for the create of a pod, and
// the additional cost of a trace.
//
//	go test ./plugins -run '^$' -bench BenchmarkATracedPod
func BenchmarkATracedPod(b *testing.B) {
	client := fake.NewClientset(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "default"}},
	)
	stopped := make(chan struct{})
	defer close(stopped)
	o := plugins.Options{
		Client: client, Informers: informers.NewSharedInformerFactory(client, 0),
		Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(), Mapper: meta.NewDefaultRESTMapper(nil),
		Version: compatibility.NewEffectiveVersionFromString("1.37", "", ""), Stopped: stopped,
		Configuration: func(string) ([]byte, error) { return nil, nil },
	}
	var chosen []admission.Plugin
	for _, name := range []string{"LimitRanger", "ServiceAccount", "TaintNodesByCondition", "PodSecurity", "Priority", "DefaultTolerationSeconds", "RuntimeClass"} {
		p, err := plugins.New(name, o)
		if err != nil {
			b.Fatal(err)
		}
		chosen = append(chosen, admission.Plugin{Name: name, Interface: p})
	}
	o.Informers.Start(stopped)
	o.Informers.WaitForCacheSync(stopped)
	chain := admission.Chain(chosen...)

	grace, none := int64(30), core.PreemptLowerPriority
	pod := &core.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", Labels: map[string]string{"app": "a"}},
		Spec: core.PodSpec{
			Containers: []core.Container{{
				Name: "c", Image: "i", ImagePullPolicy: core.PullAlways, TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: core.TerminationMessageReadFile,
				Env: []core.EnvVar{{Name: "A", Value: "b"}}, SecurityContext: &core.SecurityContext{},
			}},
			RestartPolicy: core.RestartPolicyAlways, DNSPolicy: core.DNSClusterFirst, TerminationGracePeriodSeconds: &grace,
			SecurityContext: &core.PodSecurityContext{}, SchedulerName: "default-scheduler", PreemptionPolicy: &none,
		},
	}
	interfaces := apiadmission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)
	create := func(ctx context.Context) error {
		a := apiadmission.NewAttributesRecord(pod.DeepCopy(), nil, corev1.SchemeGroupVersion.WithKind("Pod"), "shop", "p",
			corev1.SchemeGroupVersion.WithResource("pods"), "", apiadmission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "dev"})
		if err := chain.Admit(ctx, a, interfaces); err != nil {
			return err
		}
		return chain.Validate(ctx, a, interfaces)
	}
	for _, name := range []string{"trace=no", "trace=yes"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var t *trace.Trace
			for b.Loop() {
				ctx := context.Background()
				t = trace.New()
				if name == "trace=yes" {
					ctx = trace.NewContext(ctx, t)
				}
				if err := create(ctx); err != nil {
					b.Fatal(err)
				}
				t.Finish()
			}
			changes := 0
			for range t.Verdicts(true).Changes() {
				changes++
			}
			b.ReportMetric(float64(t.Len()), "steps")
			b.ReportMetric(float64(changes), "changes")
		})
	}
}
