package developing

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/internal/kit/selfsigned"
	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// cluster is a server with a running webhook, whose registration has a match condition.
type cluster struct {
	*harness.Server
	admin *kubernetes.Clientset
	mu    sync.Mutex
	// asked lists the requests that the webhook received, as USER OPERATION RESOURCE NAME.
	asked []string
}

// startCluster starts a server. Its webhook fails closed, and matches all namespaced resources.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	dir := t.TempDir()
	authority, err := selfsigned.Write(dir, "judge.hooks.svc")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{}
	server := &http.Server{Handler: c, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(l, filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")) }()
	c.Server = harness.Start(t, "--service-address", "hooks/judge="+l.Addr().String())
	t.Cleanup(func() {
		server.Close()
		<-served
	})
	c.admin = harness.Client(t, c.Admin)
	c.bind(t, "cluster-admin", "alice", "bob")
	object := fmt.Sprintf(registration, ", caBundle: "+base64.StdEncoding.EncodeToString(authority), "")
	object = strings.ReplaceAll(object, `apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps, pods]`,
		`apiGroups: ["", apps], apiVersions: ["*"], operations: ["*"], resources: [configmaps, secrets, deployments/scale, deployments, namespaces]`)
	object += "  matchConditions: [{name: theirs, expression: 'request.name != \"unjudged\"'}]\n"
	apply(t, harness.Dynamic(t, c.Admin), harness.Parsed(t, object))
	return c
}

// bind grants a ClusterRole to users.
func (c *cluster) bind(t *testing.T, role string, users ...string) {
	t.Helper()
	b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "test-" + role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}}
	for _, user := range users {
		b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: user})
	}
	if _, err := c.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// ServeHTTP implements the webhook.
func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Request struct {
			UID, Operation, Name string
			Resource             struct{ Resource string }
			UserInfo             struct{ Username string }
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		panic(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q := &in.Request
	c.asked = append(c.asked, strings.Join([]string{q.UserInfo.Username, q.Operation, q.Resource.Resource, q.Name}, " "))
	fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, q.UID)
}

func (c *cluster) wasAsked(line string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.asked, line)
}

// kubeconfig writes a kubeconfig that impersonates a user.
func (c *cluster) kubeconfig(t *testing.T, user string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.AuthInfos["as"] = config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].DeepCopy()
	config.AuthInfos["as"].Impersonate = user
	config.Contexts["as"] = &clientcmdapi.Context{Cluster: config.Contexts[config.CurrentContext].Cluster, AuthInfo: "as"}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// live starts a session of a user with the cluster.
func (c *cluster) live(t *testing.T, user string, args ...string) *session {
	t.Helper()
	s := &session{t: t, temporary: t.TempDir(), ended: make(chan error, 1)}
	all := append([]string{"dev", "--live", "--kubeconfig", c.kubeconfig(t, user), "--context", "as", "--service", "hooks/judge", "--webhook-port", harness.FreePort(t), "--watch", "*.nothing"}, args...)
	s.cmd = exec.Command(harness.Binary(t), append(all, "--", os.Args[0])...)
	// Use files instead of pipes: the guard process outlives the command, and would keep a pipe open.
	s.cmd.Dir, s.cmd.Env = t.TempDir(), append(os.Environ(), "TMPDIR="+s.temporary, behaviour+"=right")
	s.cmd.Stdout, s.cmd.Stderr = s.out.file(t), s.err.file(t)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.ended <- s.cmd.Wait() }()
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	return s
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": value}}
}

func (c *cluster) creates(t *testing.T, user, name, value string) error {
	t.Helper()
	_, err := harness.Client(t, c.As(user)).CoreV1().ConfigMaps("default").Create(t.Context(), configMap(name, value), metav1.CreateOptions{})
	return err
}

// original returns the registration of the webhook in the cluster.
func (c *cluster) original(t *testing.T) *admissionregistrationv1.ValidatingWebhookConfiguration {
	t.Helper()
	got, err := c.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "hook", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// asBefore returns an error if the cluster contains traces of a session.
func (c *cluster) asBefore(ctx context.Context) error {
	hooks := c.admin.AdmissionregistrationV1()
	validating, err := hooks.ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	mutating, err := hooks.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(validating.Items) != 1 || len(mutating.Items) != 0 {
		return fmt.Errorf("there are %d validating and %d mutating registrations", len(validating.Items), len(mutating.Items))
	}
	if conditions := validating.Items[0].Webhooks[0].MatchConditions; len(conditions) != 1 || conditions[0].Name != "theirs" {
		return fmt.Errorf("the conditions are %v", conditions)
	}
	return nil
}

// S25.20: with a cluster, only the user's own requests go to the program; concurrent changes by other users
// stay.
func TestOwnRequestsOfACluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	s := c.live(t, "alice")
	s.says(`gatehouse is ready: the requests of the user alice to https://\S+ go to the program`)
	s.says(`webhooks +hook/judge\.example\.com, at port`)
	check := func(user, name string, toProgram bool) {
		t.Helper()
		if err := c.creates(t, user, name, "fine"); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if c.wasAsked(user+" CREATE configmaps "+name) == toProgram || strings.Contains(s.err.String(), `"name":"`+name+`"`) != toProgram {
			t.Errorf("%s of %s: the program should be asked: %v; it is:\n%s%s", name, user, toProgram, &s.out, &s.err)
		}
	}
	check("alice", "one", true)
	check("bob", "two", false)
	if err := c.creates(t, "alice", "three", "forbidden"); err == nil || !strings.Contains(err.Error(), `admission webhook "judge.example.com" denied the request`) {
		t.Errorf("got %v", err)
	}
	s.says(`allowed  CREATE configmaps one in default by alice, `)
	s.says(`rejected CREATE configmaps three in default by alice, \S+; admission webhook "judge\.example\.com" denied the request`)
	if err := c.creates(t, "alice", "unjudged", "forbidden"); err != nil {
		t.Errorf("a condition of the registration: %v", err)
	}
	// Requests for Secrets stay with the webhook of the cluster, and so do subresources without a creation
	// time for validating webhooks, such as scales.
	alice := harness.Client(t, c.As("alice")).CoreV1()
	if _, err := alice.Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hidden"}, StringData: map[string]string{"a": "b"}}, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	}}
	apps := harness.Client(t, c.As("alice")).AppsV1().Deployments("default")
	if _, err := apps.Create(t.Context(), web, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if scale, err := apps.GetScale(t.Context(), "web", metav1.GetOptions{}); err != nil {
		t.Error(err)
	} else if scale.Spec.Replicas = 2; true {
		if _, err := apps.UpdateScale(t.Context(), "web", scale, metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
	}
	if err := alice.ConfigMaps("default").Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	for _, line := range []string{"alice CREATE secrets hidden", "alice DELETE configmaps one", "alice UPDATE deployments web"} {
		if !c.wasAsked(line) {
			t.Errorf("the webhook of the cluster was not asked: %s", line)
		}
	}
	if _, err := alice.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("outside of namespaces: %v", err)
	}

	// A session of a second user runs in parallel; a second session of the same user is refused.
	twice := c.live(t, "alice")
	twice.fails(`another session serves the user alice`)
	other := c.live(t, "bob")
	other.says(`gatehouse is ready: the requests of the user bob`)
	if err := c.creates(t, "bob", "four", "forbidden"); err == nil {
		t.Error("the program of bob was not asked")
	}
	check("alice", "five", true)

	// Another user changes the registration meanwhile.
	harness.Eventually(t, "the registration is written", func() error {
		u := c.original(t)
		seconds := int32(7)
		u.Webhooks[0].TimeoutSeconds = &seconds
		u.Annotations = map[string]string{"of": "gitops"}
		_, err := c.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Update(t.Context(), u, metav1.UpdateOptions{})
		return err
	})
	harness.Eventually(t, "the registration next to it follows", func() error {
		list, err := c.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if w := &list.Items[i].Webhooks[0]; *w.TimeoutSeconds != 7 {
				return fmt.Errorf("%s has %d", list.Items[i].Name, *w.TimeoutSeconds)
			}
		}
		return nil
	})
	check("alice", "six", true)
	other.end()
	s.end()
	if err := c.asBefore(t.Context()); err != nil {
		t.Error(err)
	}
	if u := c.original(t); *u.Webhooks[0].TimeoutSeconds != 7 || u.Annotations["of"] != "gitops" {
		t.Errorf("what others wrote is gone: %v", u)
	}
	if err := c.creates(t, "alice", "seven", "forbidden"); err != nil || !c.wasAsked("alice CREATE configmaps seven") {
		t.Errorf("after the end: %v", err)
	}
}

// requestsInANamespace verifies that with --namespace, the requests of all users in these namespaces go to the program.
func requestsInANamespace(t *testing.T, c *cluster) {
	t.Helper()
	s := c.live(t, "alice", "--namespace", "default,other")
	s.says(`gatehouse is ready: the requests of the namespace default,other`)
	if err := c.creates(t, "bob", "one", "forbidden"); err == nil {
		t.Error("the program was not asked")
	}
	if _, err := c.admin.CoreV1().ConfigMaps("kube-public").Create(t.Context(), configMap("two", "forbidden"), metav1.CreateOptions{}); err != nil {
		t.Errorf("elsewhere: %v", err)
	}
	s.end()
	if err := c.asBefore(t.Context()); err != nil {
		t.Error(err)
	}
}

// S25.20: a session killed at any moment leaves the cluster unchanged. If its guard is killed, too, the
// session becomes inactive after its term, and the next session removes its leftovers.
func TestKillsLeaveTheClusterAsItWas(t *testing.T) {
	speed.Long(t)
	c := startCluster(t)
	times := speed.Of(1, 6)
	if n, err := strconv.Atoi(os.Getenv(kills)); err == nil {
		times = n
	}
	begun := time.Now()
	s := c.live(t, "alice")
	s.says(`gatehouse is ready`)
	took := time.Since(begun)
	s.end()
	for i := range times {
		s := c.live(t, "alice")
		if i == times-1 {
			s.says(`gatehouse is ready`)
		} else {
			time.Sleep(took * time.Duration(i+1) / time.Duration(times))
		}
		_ = s.cmd.Process.Kill()
		<-s.ended
		harness.Eventually(t, "the cluster is as it was", func() error { return c.asBefore(t.Context()) })
		harness.Eventually(t, "all processes end", func() error { return noProcess(s.temporary) })
	}

	s = c.live(t, "alice")
	s.says(`gatehouse is ready`)
	children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", s.cmd.Process.Pid))
	if err != nil || len(children) == 0 {
		t.Skip("this machine does not say which processes there are")
	}
	for _, file := range children {
		data, _ := os.ReadFile(file)
		for _, field := range strings.Fields(string(data)) {
			line, _ := os.ReadFile("/proc/" + field + "/cmdline")
			if id, err := strconv.Atoi(field); err == nil && strings.Contains(string(line), "--guard=") {
				_ = syscall.Kill(id, syscall.SIGKILL)
			}
		}
	}
	_ = s.cmd.Process.Kill()
	<-s.ended
	if err := c.asBefore(t.Context()); err == nil {
		t.Error("the guard was not killed")
	}
	n := 0
	harness.Eventually(t, "the term is over", func() error {
		n++
		name := fmt.Sprint("later-", n)
		if err := c.creates(t, "alice", name, "forbidden"); err != nil {
			return err
		}
		if !c.wasAsked("alice CREATE configmaps " + name) {
			return fmt.Errorf("%s: the webhook of the cluster was not asked", name)
		}
		return nil
	})
	s = c.live(t, "alice")
	s.says(`gatehouse is ready`)
	s.end()
}

// S25.20: what a live session needs, and its scope. An impossible session with a cluster causes a one-sentence error before anything is written.
func TestWhatKeepsALiveSessionFromStarting(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	t.Run("requests in a namespace", func(t *testing.T) { requestsInANamespace(t, c) })
	t.Run("the printed ClusterRole", func(t *testing.T) { rightsOfALiveSession(t, c) })
	c.bind(t, "some", "carol")
	if _, err := c.admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "some"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"list", "get", "create", "delete"}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range speed.Some(t, 2, []struct {
		name, user string
		args       []string
		want       string
	}{
		{"a namespace of the cluster itself", "alice", []string{"-n", "kube-system"}, "--namespace kube-system: a program on this machine must not decide"},
		{"a service that nobody names", "alice", []string{"--service", "hooks/other"}, "no webhook that is registered in the cluster names the service hooks/other"},
		{"no right to write the original", "carol", nil, "nothing was written, since the cluster refuses it: .*--live --rbac"},
		{"no right to read", "dave", nil, "reading the registrations of the cluster: .*--live --rbac"},
		{"a node", "system:node:a", nil, "of the control plane"},
		{"a place that nobody reaches", "alice", []string{"--url", "https://127.0.0.1:1"}, "the cluster does not reach https://127.0.0.1:1"},
		{"a URL without TLS", "alice", []string{"--url", "http://a"}, "--url .* is not https"},
		{"a flag of the other way", "alice", []string{"--data-dir", "x"}, "--data-dir is for a server of this command"},
	}) {
		t.Run(tc.name, func(t *testing.T) {
			s := c.live(t, tc.user, tc.args...)
			s.fails(tc.want)
			if err := c.asBefore(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("no place for a condition", func(t *testing.T) {
		u := c.original(t)
		for i := range 63 {
			u.Webhooks[0].MatchConditions = append(u.Webhooks[0].MatchConditions, admissionregistrationv1.MatchCondition{Name: fmt.Sprint("c", i), Expression: "true"})
		}
		if _, err := c.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.live(t, "alice").fails("hook/judge.example.com has 64 match conditions, the most that a webhook may have")
	})
}

// rightsOfALiveSession verifies that the printed ClusterRole is sufficient.
func rightsOfALiveSession(t *testing.T, c *cluster) {
	t.Helper()
	role := harness.Run(t, "dev", "--live", "--rbac")
	file := filepath.Join(t.TempDir(), "role.yaml")
	write(t, file, role.Out)
	if r := harness.Run(t, "kubectl", "--kubeconfig", c.Kubeconfig, "apply", "-f", file); r.Code != 0 {
		t.Fatal(r)
	}
	c.bind(t, "gatehouse-dev", "erin")
	s := c.live(t, "erin")
	s.says(`gatehouse is ready`)
	if strings.Contains(s.out.String(), "was not tried") {
		t.Error(&s.out)
	}
	s.end()
}
