package controllers

import (
	"context"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/kubernetes/pkg/controller/bootstrap"
	"k8s.io/kubernetes/pkg/controller/cronjob"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/replication"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/controller/ttl"
	"k8s.io/kubernetes/pkg/controller/ttlafterfinished"

	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/fakenodes"
)

// workloadWorkers is the number of workers of each workload controller, as in a
// kube-controller-manager. A workload controller sees the objects that it makes before they are
// initialized, and their owners only when these are initialized.
const workloadWorkers = 5

func runDeployments(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	return working(deployment.NewDeploymentController(ctx, t.informers.Apps().V1().Deployments(), t.all.Apps().V1().ReplicaSets(), t.all.Core().V1().Pods(), client))(workloadWorkers)
}

func runReplicaSets(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	c := replicaset.NewReplicaSetController(ctx, t.informers.Apps().V1().ReplicaSets(), t.all.Core().V1().Pods(), client, replicaset.BurstReplicas)
	return func(ctx context.Context) { c.Run(ctx, workloadWorkers) }, nil
}

func runReplicationControllers(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	c := replication.NewReplicationManager(ctx, t.all.Core().V1().Pods(), t.informers.Core().V1().ReplicationControllers(), client, replication.BurstReplicas)
	return func(ctx context.Context) { c.Run(ctx, workloadWorkers) }, nil
}

func runStatefulSets(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	core, apps := t.all.Core().V1(), t.all.Apps().V1()
	c := statefulset.NewStatefulSetController(ctx, core.Pods(), t.informers.Apps().V1().StatefulSets(), core.PersistentVolumeClaims(), apps.ControllerRevisions(), client)
	return func(ctx context.Context) { c.Run(ctx, workloadWorkers) }, nil
}

func runDaemonSets(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	return working(daemon.NewDaemonSetsController(ctx, t.informers.Apps().V1().DaemonSets(), t.all.Apps().V1().ControllerRevisions(),
		t.all.Core().V1().Pods(), t.informers.Core().V1().Nodes(), client,
		flowcontrol.NewBackOff(time.Second, 15*time.Minute)))(2)
}

func runJobs(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	return working(job.NewController(ctx, client, t.all.Core().V1().Pods(), t.informers.Batch().V1().Jobs(), nil, nil))(workloadWorkers)
}

func runCronJobs(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	return working(cronjob.NewControllerV2(ctx, t.all.Batch().V1().Jobs(), t.informers.Batch().V1().CronJobs(), client))(workloadWorkers)
}

// deleteFinishedJobs deletes finished Jobs when their ttlSecondsAfterFinished is over.
func deleteFinishedJobs(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	c := ttlafterfinished.New(ctx, t.informers.Batch().V1().Jobs(), client)
	return func(ctx context.Context) { c.Run(ctx, workloadWorkers) }, nil
}

// annotateNodes writes on each node how long its kubelet may cache Secrets and ConfigMaps.
func annotateNodes(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	c := ttl.NewTTLController(ctx, t.informers.Core().V1().Nodes(), client)
	return func(ctx context.Context) { c.Run(ctx, 5) }, nil
}

// signBootstrap signs the ConfigMap cluster-info for nodes that join with a token.
func signBootstrap(_ context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	core := t.informers.Core().V1()
	return running(bootstrap.NewSigner(client, core.Secrets(), core.ConfigMaps(), bootstrap.DefaultSignerOptions()))
}

// cleanTokens deletes bootstrap tokens that have expired.
func cleanTokens(_ context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	return running(bootstrap.NewTokenCleaner(client, t.informers.Core().V1().Secrets(), bootstrap.DefaultTokenCleanerOptions()))
}

// fakeNodes runs a fake scheduler and fake nodes.
func fakeNodes(_ context.Context, t *term, _ kubernetes.Interface) (func(context.Context), error) {
	// The fake kubelets act as the server: they share one client, and a kubelet's own rights are
	// for one node.
	kubelet, err := kubernetes.NewForConfig(t.loopback)
	if err != nil {
		return nil, err
	}
	as := restclient.CopyConfig(t.loopback)
	as.Impersonate.UserName = user.KubeScheduler
	scheduler, err := kubernetes.NewForConfig(as)
	if err != nil {
		return nil, err
	}
	core := t.informers.Core().V1()
	return running(fakenodes.New(fakenodes.Options{
		Count: t.options.FakeNodes, Kubelet: kubelet, Scheduler: scheduler, Pods: core.Pods(), Nodes: core.Nodes(),
	}))
}
