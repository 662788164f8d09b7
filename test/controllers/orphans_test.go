package controllers

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// An owner deleted with the policy Orphan leaves dependents created just before, even if the collector has
// not observed them yet. GATEHOUSE_ORPHANS is the number of repetitions.
func TestOrphanLeavesDependentsMadeJustBefore(t *testing.T) {
	t.Parallel()
	runs := speed.Of(8, 100)
	if n, err := strconv.Atoi(os.Getenv("GATEHOUSE_ORPHANS")); err == nil {
		runs = n
	}
	const atOnce, dependents = 8, 4
	s := harness.Sole(t, "--controllers", "*", "--initializer-timeout", "10m")
	o := newOwners(t, s)
	var running sync.WaitGroup
	for worker := range atOnce {
		running.Go(func() {
			for run := worker; run < runs; run += atOnce {
				if err := o.orphan(fmt.Sprintf("owner-%d", run), dependents); err != nil {
					t.Errorf("run %d: %v", run, err)
				}
			}
		})
	}
	running.Wait()
	o.collected()
	secrets, err := o.client.CoreV1().Secrets(o.ns).List(harness.Context(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lost, owned := runs*dependents-len(secrets.Items), 0
	for _, secret := range secrets.Items {
		owned += len(secret.OwnerReferences)
	}
	t.Logf("%d runs, %d dependents lost", runs, lost)
	if lost != 0 || owned != 0 {
		t.Errorf("of %d dependents %d are gone, and %d still have an owner", runs*dependents, lost, owned)
	}
}

// orphan creates an owner and dependents of another kind, deletes the owner at once, and returns when it is
// gone.
func (o *owners) orphan(name string, dependents int) error {
	ctx := harness.Context(o)
	owner, err := o.client.CoreV1().ConfigMaps(o.ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for i := range dependents {
		if _, err := o.client.CoreV1().Secrets(o.ns).Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i), OwnerReferences: ownedBy(owner)},
		}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if err := o.client.CoreV1().ConfigMaps(o.ns).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)}); err != nil {
		return err
	}
	for {
		if _, err := o.client.CoreV1().ConfigMaps(o.ns).Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
