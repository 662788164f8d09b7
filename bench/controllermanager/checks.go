package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
)

// patience is the timeout of a check. A kube-controller-manager looks for new kinds every 30 seconds, and retries the
// deletion of a namespace at increasing intervals.
const patience = 2 * time.Minute

// namespace is the namespace of the objects.
const namespace = "work"

// world is a server with a kube-controller-manager.
type world struct {
	ctx     context.Context
	config  *rest.Config
	client  kubernetes.Interface
	dynamic dynamic.Interface
	// ca is the CA certificate with which pods verify the server.
	ca string
}

func newWorld(ctx context.Context, config *rest.Config, ca string) (*world, error) {
	data, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	w := &world{ctx: ctx, config: config, ca: string(data)}
	if w.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	w.dynamic, err = dynamic.NewForConfig(config)
	return w, err
}

// eventually waits until a condition holds.
func (w *world) eventually(condition func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := condition(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", patience, err)
		}
	}
}

// checks run one after the other; later checks use the objects of earlier ones.
var checks = []struct {
	name string
	run  func(*world) error
}{
	{"it holds its Lease", (*world).lease},
	{"a namespace gets its ServiceAccount and the CA", (*world).furnished},
	{"a Secret gets a token that the server accepts", (*world).token},
	{"a Deployment makes pods, and is scaled", (*world).deployment},
	{"a Service gets an EndpointSlice with its pods", (*world).endpoints},
	{"a Job makes a pod, and completes", (*world).job},
	{"a quota is counted", (*world).quota},
	{"a claim is bound to a volume", (*world).volume},
	{"an aggregated ClusterRole is filled", (*world).aggregatedRole},
	{"a certificate is signed that the server accepts", (*world).certificate},
	{"background and orphan deletion", (*world).cascade},
	{"a Deployment is deleted in the foreground", (*world).foreground},
	{"garbage of a new custom kind is collected", (*world).custom},
	{"a namespace is emptied and goes", (*world).emptied},
}

var once = metav1.CreateOptions{}

func (w *world) lease() error {
	return w.eventually(func(ctx context.Context) error {
		l, err := w.client.CoordinationV1().Leases("kube-system").Get(ctx, "kube-controller-manager", metav1.GetOptions{})
		if err == nil && (l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "") {
			err = errors.New("it has no holder")
		}
		return err
	})
}

func (w *world) furnished() error {
	if _, err := w.client.CoreV1().Namespaces().Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, once); err != nil {
		return err
	}
	return w.eventually(func(ctx context.Context) error {
		if _, err := w.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err
		}
		found, err := w.client.CoreV1().ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if err == nil && found.Data["ca.crt"] != w.ca {
			err = errors.New("kube-root-ca.crt has another certificate")
		}
		return err
	})
}

// name asks the server for the name of a user with these credentials.
func (w *world) name(config *rest.Config) (string, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	me, err := client.AuthenticationV1().SelfSubjectReviews().Create(w.ctx, &authenticationv1.SelfSubjectReview{}, once)
	if err != nil {
		return "", err
	}
	return me.Status.UserInfo.Username, nil
}

func (w *world) token() error {
	secrets := w.client.CoreV1().Secrets(namespace)
	if _, err := secrets.Create(w.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, once); err != nil {
		return err
	}
	config := rest.AnonymousClientConfig(w.config)
	if err := w.eventually(func(ctx context.Context) error {
		found, err := secrets.Get(ctx, "token", metav1.GetOptions{})
		if err == nil && len(found.Data[corev1.ServiceAccountTokenKey]) == 0 {
			err = errors.New("there is no token in it")
		}
		if err == nil {
			config.BearerToken = string(found.Data[corev1.ServiceAccountTokenKey])
		}
		return err
	}); err != nil {
		return err
	}
	name, err := w.name(config)
	if want := "system:serviceaccount:" + namespace + ":default"; err == nil && name != want {
		err = fmt.Errorf("it is the token of %q, want %q", name, want)
	}
	return err
}

func template(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		// Without a kubelet, a pod with a grace period would never end.
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(0)), Containers: []corev1.Container{{Name: "c", Image: "example.com/none"}}},
	}
}

// pods waits until an app has the given number of pods.
func (w *world) pods(app string, want int) (list []corev1.Pod, err error) {
	return list, w.eventually(func(ctx context.Context) error {
		pods, err := w.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		if err == nil && len(pods.Items) != want {
			err = fmt.Errorf("%d pods, want %d", len(pods.Items), want)
		}
		if err == nil {
			list = pods.Items
		}
		return err
	})
}

func (w *world) deployment() error {
	deployments := w.client.AppsV1().Deployments(namespace)
	pod := template("web")
	if _, err := deployments.Create(w.ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}, Template: pod,
	}}, once); err != nil {
		return err
	}
	if _, err := w.pods("web", 2); err != nil {
		return err
	}
	if _, err := deployments.Patch(w.ctx, "web", types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{}); err != nil {
		return err
	}
	_, err := w.pods("web", 3)
	return err
}

// node is the node of the pods. It has no kubelet: after some minutes, a kube-controller-manager would evict the
// pods.
const node = "node"

// set binds pods to the node, and sets their status as a kubelet would.
func (w *world) set(pods []corev1.Pod, phase corev1.PodPhase) error {
	if _, err := w.client.CoreV1().Nodes().Create(w.ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}, once); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	for i, pod := range pods {
		if err := w.client.CoreV1().Pods(namespace).Bind(w.ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
		}, once); err != nil {
			return err
		}
		ready := corev1.ConditionFalse
		if phase == corev1.PodRunning {
			ready = corev1.ConditionTrue
		}
		ip := fmt.Sprint("10.1.2.", i+1)
		pod.Status = corev1.PodStatus{
			Phase: phase, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
		}
		status, err := json.Marshal(map[string]any{"status": pod.Status})
		if err != nil {
			return err
		}
		if _, err := w.client.CoreV1().Pods(namespace).Patch(w.ctx, pod.Name, types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) endpoints() error {
	if _, err := w.client.CoreV1().Services(namespace).Create(w.ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}},
	}}, once); err != nil {
		return err
	}
	pods, err := w.pods("web", 3)
	if err != nil {
		return err
	}
	if err := w.set(pods, corev1.PodRunning); err != nil {
		return err
	}
	return w.eventually(func(ctx context.Context) error {
		slices, err := w.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=web"})
		if err != nil {
			return err
		}
		ready := map[string]bool{}
		for _, slice := range slices.Items {
			for _, e := range slice.Endpoints {
				if e.Conditions.Ready != nil && *e.Conditions.Ready {
					ready[e.Addresses[0]] = true
				}
			}
		}
		if len(ready) != 3 {
			return fmt.Errorf("ready: %v", ready)
		}
		return nil
	})
}

func (w *world) job() error {
	pod := template("job")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	jobs := w.client.BatchV1().Jobs(namespace)
	if _, err := jobs.Create(w.ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: batchv1.JobSpec{Template: pod}}, once); err != nil {
		return err
	}
	pods, err := w.pods("job", 1)
	if err != nil {
		return err
	}
	if err := w.set(pods, corev1.PodSucceeded); err != nil {
		return err
	}
	return w.eventually(func(ctx context.Context) error {
		j, err := jobs.Get(ctx, "job", metav1.GetOptions{})
		if err == nil && j.Status.Succeeded != 1 {
			err = fmt.Errorf("%+v", j.Status)
		}
		return err
	})
}

func (w *world) quota() error {
	quotas := w.client.CoreV1().ResourceQuotas(namespace)
	if _, err := quotas.Create(w.ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{"services": resource.MustParse("1"), "count/deployments.apps": resource.MustParse("5")},
	}}, once); err != nil {
		return err
	}
	if err := w.eventually(func(ctx context.Context) error {
		q, err := quotas.Get(ctx, "q", metav1.GetOptions{})
		if err == nil && (!q.Status.Used["services"].Equal(resource.MustParse("1")) || !q.Status.Used["count/deployments.apps"].Equal(resource.MustParse("1"))) {
			err = fmt.Errorf("used: %v", q.Status.Used)
		}
		return err
	}); err != nil {
		return err
	}
	_, err := w.client.CoreV1().Services(namespace).Create(w.ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "more"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, once)
	if !apierrors.IsForbidden(err) {
		return fmt.Errorf("one more service: %v, want 403", err)
	}
	return nil
}

func (w *world) volume() error {
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	if _, err := w.client.CoreV1().PersistentVolumes().Create(w.ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: modes, StorageClassName: "none",
		PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs.example.com", Path: "/v"}},
	}}, once); err != nil {
		return err
	}
	claims := w.client.CoreV1().PersistentVolumeClaims(namespace)
	if _, err := claims.Create(w.ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: modes, StorageClassName: new("none"), Resources: corev1.VolumeResourceRequirements{Requests: size},
	}}, once); err != nil {
		return err
	}
	return w.eventually(func(ctx context.Context) error {
		c, err := claims.Get(ctx, "c", metav1.GetOptions{})
		if err == nil && c.Status.Phase != corev1.ClaimBound {
			err = fmt.Errorf("it is %s", c.Status.Phase)
		}
		return err
	})
}

func (w *world) aggregatedRole() error {
	roles := w.client.RbacV1().ClusterRoles()
	label := map[string]string{"example.com/part": "true"}
	rule := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}
	for _, role := range []*rbacv1.ClusterRole{
		{ObjectMeta: metav1.ObjectMeta{Name: "whole"}, AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: label}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "part", Labels: label}, Rules: []rbacv1.PolicyRule{rule}},
	} {
		if _, err := roles.Create(w.ctx, role, once); err != nil {
			return err
		}
	}
	return w.eventually(func(ctx context.Context) error {
		whole, err := roles.Get(ctx, "whole", metav1.GetOptions{})
		if err == nil && len(whole.Rules) != 1 {
			err = fmt.Errorf("its rules: %v", whole.Rules)
		}
		return err
	})
}

func (w *world) certificate() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane"}}, key)
	if err != nil {
		return err
	}
	requests := w.client.CertificatesV1().CertificateSigningRequests()
	made, err := requests.Create(w.ctx, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "jane"}, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}),
		SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
	}}, once)
	if err != nil {
		return err
	}
	made.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Asked"}}
	if _, err := requests.UpdateApproval(w.ctx, "jane", made, metav1.UpdateOptions{}); err != nil {
		return err
	}
	config := rest.AnonymousClientConfig(w.config)
	if config.KeyData, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return err
	}
	if err := w.eventually(func(ctx context.Context) error {
		signed, err := requests.Get(ctx, "jane", metav1.GetOptions{})
		if err == nil && len(signed.Status.Certificate) == 0 {
			err = fmt.Errorf("conditions: %v", signed.Status.Conditions)
		}
		if err == nil {
			config.CertData = bytes.TrimSpace(signed.Status.Certificate)
		}
		return err
	}); err != nil {
		return err
	}
	name, err := w.name(config)
	if err == nil && name != "jane" {
		err = fmt.Errorf("it is the certificate of %q", name)
	}
	return err
}

// configMap creates a ConfigMap with owners.
func (w *world) configMap(name string, owners ...metav1.OwnerReference) (metav1.OwnerReference, error) {
	made, err := w.client.CoreV1().ConfigMaps(namespace).Create(w.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}, once)
	if err != nil {
		return metav1.OwnerReference{}, err
	}
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: made.UID}, nil
}

// gone waits until a ConfigMap is deleted.
func (w *world) gone(name string) error {
	return w.eventually(func(ctx context.Context) error {
		_, err := w.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%s is there: %v", name, err)
	})
}

func (w *world) cascade() error {
	configMaps := w.client.CoreV1().ConfigMaps(namespace)
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationOrphan, metav1.DeletePropagationBackground} {
		owner := "owner-" + strings.ToLower(string(policy))
		ref, err := w.configMap(owner)
		if err != nil {
			return err
		}
		if _, err := w.configMap("of-"+owner, ref); err != nil {
			return err
		}
		if err := configMaps.Delete(w.ctx, owner, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
			return err
		}
		if err := w.gone(owner); err != nil {
			return err
		}
	}
	if err := w.gone("of-owner-background"); err != nil {
		return err
	}
	kept, err := configMaps.Get(w.ctx, "of-owner-orphan", metav1.GetOptions{})
	if err == nil && len(kept.OwnerReferences) > 0 {
		err = fmt.Errorf("the orphan has owners: %v", kept.OwnerReferences)
	}
	return err
}

func (w *world) foreground() error {
	deployments := w.client.AppsV1().Deployments(namespace)
	if err := deployments.Delete(w.ctx, "web", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}); err != nil {
		return err
	}
	return w.eventually(func(ctx context.Context) error {
		_, err := deployments.Get(ctx, "web", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the deployment is there: %v", err)
		}
		pods, err := w.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("the deployment is gone, and %d pods are there", len(pods.Items))
		}
		return err
	})
}

func (w *world) custom() error {
	definition := map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "gadgets.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced", "names": map[string]any{"kind": "Gadget", "plural": "gadgets", "singular": "gadget"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}},
		},
	}
	definitions := w.dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := definitions.Create(w.ctx, &unstructured.Unstructured{Object: definition}, once); err != nil {
		return err
	}
	gadgets := w.dynamic.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}).Namespace(namespace)
	var made *unstructured.Unstructured
	if err := w.eventually(func(ctx context.Context) (err error) {
		made, err = gadgets.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": map[string]any{"name": "g"},
		}}, once)
		return err
	}); err != nil {
		return err
	}
	if _, err := w.configMap("of-gadget", metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Gadget", Name: "g", UID: made.GetUID()}); err != nil {
		return err
	}
	if err := gadgets.Delete(w.ctx, "g", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return w.gone("of-gadget")
}

func (w *world) emptied() error {
	namespaces := w.client.CoreV1().Namespaces()
	if err := namespaces.Delete(w.ctx, namespace, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return w.eventually(func(ctx context.Context) error {
		ns, err := namespaces.Get(ctx, namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("it is there: %v", ns.Status)
		}
		return err
	})
}
