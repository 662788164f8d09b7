package objects

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	v1 "k8s.io/client-go/applyconfigurations/apps/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

func TestControllerRuntime(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	for name, config := range map[string]*rest.Config{"JSON": s.Admin, "protobuf": harness.Protobuf(s.Admin)} {
		for _, cached := range []bool{false, true} {
			if cached {
				name += ", cached"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ns := s.Namespace(t)
				c := controllerClient(t, config, ns, cached)
				ctx := harness.Context(t)
				d := &appsv1.Deployment{}
				if err := yaml.Unmarshal([]byte(deployment("apps/v1", "d")), d); err != nil {
					t.Fatal(err)
				}
				d.Namespace = ns
				must := func(err error) {
					t.Helper()
					if err != nil {
						t.Fatal(err)
					}
				}
				key := client.ObjectKeyFromObject(d)
				// A cache is updated with a delay.
				until := func(what string, condition func(*appsv1.Deployment) bool) *appsv1.Deployment {
					t.Helper()
					got := &appsv1.Deployment{}
					harness.Eventually(t, what, func() error {
						if err := c.Get(ctx, key, got); err != nil {
							return err
						}
						if !condition(got) {
							return apierrors.NewNotFound(appsv1.Resource("deployments"), "as wanted")
						}
						return nil
					})
					return got
				}
				must(c.Create(ctx, d))
				if err := c.Create(ctx, d.DeepCopy()); err == nil {
					t.Error("created twice")
				}
				got := until("created", func(*appsv1.Deployment) bool { return true })

				got.Spec.Template.Spec.Containers[0].Image = "example/main:2"
				must(c.Update(ctx, got))
				got.Status.Replicas = 2
				must(c.Status().Update(ctx, got))
				got = until("status", func(d *appsv1.Deployment) bool { return d.Status.Replicas == 2 })
				want(t, "image", got.Spec.Template.Spec.Containers[0].Image, "example/main:2")

				base := got.DeepCopy()
				got.Labels["patched"] = "yes"
				must(c.Patch(ctx, got, client.MergeFrom(base)))
				base = got.DeepCopy()
				got.Spec.Template.Spec.Containers = append(got.Spec.Template.Spec.Containers, corev1.Container{Name: "side", Image: "s:1"})
				must(c.Patch(ctx, got, client.StrategicMergeFrom(base)))
				base = got.DeepCopy()
				got.Status.ReadyReplicas = 1
				must(c.Status().Patch(ctx, got, client.MergeFrom(base)))
				got = until("patched", func(d *appsv1.Deployment) bool { return d.Status.ReadyReplicas == 1 })
				want(t, "label", got.Labels["patched"], "yes")
				want(t, "containers", len(got.Spec.Template.Spec.Containers), 2)

				// controller-runtime applies only in JSON.
				applier := controllerClient(t, s.Admin, ns, false)
				must(applier.Apply(ctx, v1.Deployment("d", ns).WithSpec(v1.DeploymentSpec().WithReplicas(9)), client.FieldOwner("applier"), client.ForceOwnership))
				until("applied", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 9 })
				conflict := applier.Apply(ctx, v1.Deployment("d", ns).WithSpec(v1.DeploymentSpec().WithReplicas(10)), client.FieldOwner("another"))
				if !apierrors.IsConflict(conflict) {
					t.Errorf("apply over another's field: %v", conflict)
				}

				list := &appsv1.DeploymentList{}
				must(c.List(ctx, list, client.InNamespace(ns), client.MatchingLabels{"app": "d"}))
				want(t, "listed", len(list.Items), 1)
				u := &unstructured.Unstructured{}
				u.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
				harness.Eventually(t, "seen as unstructured", func() error { return c.Get(ctx, key, u) })
				m := &metav1.PartialObjectMetadata{}
				m.SetGroupVersionKind(u.GroupVersionKind())
				harness.Eventually(t, "seen as metadata", func() error { return c.Get(ctx, key, m) })
				want(t, "label of the metadata", m.Labels["app"], "d")

				must(c.DeleteAllOf(ctx, &appsv1.Deployment{}, client.InNamespace(ns)))
				harness.Eventually(t, "deleted", func() error {
					if err := c.Get(ctx, key, got); !apierrors.IsNotFound(err) {
						return apierrors.NewConflict(appsv1.Resource("deployments"), "d", err)
					}
					return nil
				})
			})
		}
	}
}

// controllerClient returns a client, optionally with a cache for reads.
func controllerClient(t *testing.T, config *rest.Config, ns string, cached bool) client.Client {
	t.Helper()
	options := client.Options{Scheme: scheme.Scheme}
	if cached {
		informers, err := cache.New(config, cache.Options{Scheme: scheme.Scheme, DefaultNamespaces: map[string]cache.Config{ns: {}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- informers.Start(ctx) }()
		t.Cleanup(func() {
			stop()
			if err := <-done; err != nil {
				t.Errorf("cache: %v", err)
			}
		})
		options.Cache = &client.CacheOptions{Reader: informers, Unstructured: true}
	}
	c, err := client.New(config, options)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
