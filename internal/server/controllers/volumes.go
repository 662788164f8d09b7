package controllers

import (
	"context"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/volume/ephemeral"
	"k8s.io/kubernetes/pkg/controller/volume/persistentvolume"
	"k8s.io/kubernetes/pkg/controller/volume/pvcprotection"
	"k8s.io/kubernetes/pkg/controller/volume/pvprotection"
	"k8s.io/kubernetes/pkg/controller/volume/vacprotection"
)

// bindAgain is how often the controller compares all volumes and claims again.
const bindAgain = 15 * time.Second

// bindVolumes binds PersistentVolumeClaims to PersistentVolumes. It has no plugins:
// other programs make, empty or remove volumes.
func bindVolumes(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	core := t.informers.Core().V1()
	return running(persistentvolume.NewController(ctx, persistentvolume.ControllerParameters{
		KubeClient: client, SyncPeriod: bindAgain,
		VolumeInformer: core.PersistentVolumes(), ClaimInformer: core.PersistentVolumeClaims(),
		ClassInformer: t.informers.Storage().V1().StorageClasses(), PodInformer: core.Pods(), NodeInformer: core.Nodes(),
		EnableDynamicProvisioning: true,
	}))
}

// ephemeralVolumes makes the claims of pods with ephemeral volumes.
func ephemeralVolumes(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	return working(ephemeral.NewController(ctx, client, t.informers.Core().V1().Pods(), t.all.Core().V1().PersistentVolumeClaims()))(5)
}

// protectClaims removes the finalizer of a deleted claim when no pod uses the claim.
func protectClaims(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	core := t.informers.Core().V1()
	return working(pvcprotection.NewPVCProtectionController(klog.FromContext(ctx), core.PersistentVolumeClaims(), core.Pods(), client))(1)
}

// protectVolumes removes the finalizer of a deleted volume when the volume is not bound.
func protectVolumes(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	return working(pvprotection.NewPVProtectionController(klog.FromContext(ctx), t.informers.Core().V1().PersistentVolumes(), client))(1)
}

// protectAttributes removes the finalizer of a deleted VolumeAttributesClass when it is not in use.
func protectAttributes(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	core := t.informers.Core().V1()
	return working(vacprotection.NewVACProtectionController(klog.FromContext(ctx), client, core.PersistentVolumeClaims(), core.PersistentVolumes(),
		t.informers.Storage().V1().VolumeAttributesClasses()))(1)
}
