// Live makes a kube-apiserver call programs on this machine with 'gatehouse dev --live': for the requests of one
// user, another user, and a namespace. Then it kills such sessions at many moments. Each time, it verifies that the
// webhook configurations are restored within the term of a session, and that no process is left. It exits with 1 if a
// webhook was called for the request of another session, or if anything is left.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
	"github.com/gatehouse-dev/gatehouse/internal/kit/selfsigned"
)

// term includes the term of a session, and the delays of its guard and of a busy machine.
const term = 20 * time.Second

func main() {
	if port := os.Getenv("LIVE_PROGRAM_PORT"); port != "" {
		// The program of a session. It denies objects that request it.
		hook := &hook{denies: true}
		// The end of the session kills the program.
		panic(http.ListenAndServeTLS("localhost:"+port, os.Getenv("CERT_DIR")+"/tls.crt", os.Getenv("CERT_DIR")+"/tls.key", hook))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	binaries := flag.String("binaries", "", "`directory` of the programs (default: in the user's cache)")
	kills := flag.Int("kills", 20, "how many sessions are killed")
	flag.Parse()
	if err := run(ctx, *binaries, *kills); err != nil {
		fmt.Fprintln(os.Stderr, "live:", err)
		os.Exit(1)
	}
}

// hook is a webhook. It records the objects that it was called for.
type hook struct {
	denies bool
	mu     sync.Mutex
	asked  []string
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Request struct {
			UID, Name string
			Object    struct{ Data map[string]string }
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	h.asked = append(h.asked, in.Request.Name)
	h.mu.Unlock()
	allowed := !h.denies || in.Request.Object.Data["a"] != "forbidden"
	fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":%t}}`, in.Request.UID, allowed)
}

// was reports whether the webhook was called for an object.
func (h *hook) was(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.asked, name)
}

const objects = `
apiVersion: v1
kind: Namespace
metadata: {name: hooks}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: judge, namespace: hooks}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: live}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: alice}, {kind: User, apiGroup: rbac.authorization.k8s.io, name: bob}]
`

const registration = `
apiVersion: admissionregistration.k8s.io/v1
kind: %sWebhookConfiguration
metadata: {name: hook}
webhooks:
- name: judge.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  clientConfig: {service: {namespace: hooks, name: judge, path: /judge, port: %d}, caBundle: %s}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [configmaps, secrets]}]
`

// bench is a kube-apiserver with a webhook.
type bench struct {
	server    *peer.Server
	gatehouse string
	dir       string
	client    dynamic.Interface
	original  *hook
	before    map[string]any
	faults    []error
}

func run(ctx context.Context, binaries string, kills int) (err error) {
	programs, err := peer.Build(ctx, ".", binaries)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "live-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{gatehouse: programs.Gatehouse, dir: dir, original: &hook{}}
	if b.server, err = peer.Start(ctx, programs, peer.KubeAPIServer, filepath.Join(dir, "server"), "--disable-admission-plugins=ServiceAccount"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.server.Stop()) }()
	end, err := b.prepare(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := b.claims(ctx); err != nil {
		return err
	}
	if err := b.kill(ctx, kills); err != nil {
		return err
	}
	return errors.Join(b.faults...)
}

// prepare creates the objects, and serves the webhook of the cluster until end is called.
func (b *bench) prepare(ctx context.Context) (end func(), err error) {
	files := filepath.Join(b.dir, "hook")
	if err := os.Mkdir(files, 0o700); err != nil {
		return nil, err
	}
	authority, err := selfsigned.Write(files, "judge.hooks.svc")
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return nil, err
	}
	server, served := &http.Server{Handler: b.original, ReadHeaderTimeout: time.Minute}, make(chan error, 1)
	go func() { served <- server.ServeTLS(l, filepath.Join(files, "tls.crt"), filepath.Join(files, "tls.key")) }()
	end = func() {
		server.Close()
		<-served
	}
	if b.client, err = dynamic.NewForConfig(b.server.Config); err != nil {
		return end, err
	}
	bundle, text := base64.StdEncoding.EncodeToString(authority), objects
	for _, kind := range []string{"Mutating", "Validating"} {
		text += "---" + fmt.Sprintf(registration, kind, l.Addr().(*net.TCPAddr).Port, bundle)
	}
	for document := range strings.SplitSeq(text, "---") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			return end, err
		}
		gvr := schema.GroupVersionResource{Group: u.GroupVersionKind().Group, Version: "v1", Resource: strings.ToLower(u.GetKind()) + "s"}
		if _, err := b.client.Resource(gvr).Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{}); err != nil {
			return end, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
	if b.before, err = b.registrations(ctx); err != nil {
		return end, err
	}
	return end, b.until(ctx, "the webhook is asked", func() error { return b.create(ctx, "alice", "default", "first", "fine", b.original) })
}

// registrations returns the webhook configurations of the cluster, without the fields that each write changes.
func (b *bench) registrations(ctx context.Context) (map[string]any, error) {
	found := map[string]any{}
	for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
		list, err := b.client.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource}).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			u := &list.Items[i]
			for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
				unstructured.RemoveNestedField(u.Object, "metadata", field)
			}
			found[resource+"/"+u.GetName()] = u.Object
		}
	}
	return found, nil
}

// asBefore returns an error if the webhook configurations have changed.
func (b *bench) asBefore(ctx context.Context) error {
	now, err := b.registrations(ctx)
	if err != nil {
		return err
	}
	had, _ := json.Marshal(b.before)
	have, _ := json.Marshal(now)
	if string(had) != string(have) {
		return fmt.Errorf("the registrations are %s, and were %s", have, had)
	}
	return nil
}

// until repeats so until it returns no error, for up to term.
func (b *bench) until(ctx context.Context, what string, so func() error) error {
	ctx, cancel := context.WithTimeout(ctx, term)
	defer cancel()
	for {
		err := so()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %s: %w", term, what, err)
		}
	}
}

// create creates an object as a user. asked is the webhook that must be called; nil means that the program of a
// session must deny the object.
func (b *bench) create(ctx context.Context, user, namespace, name, value string, asked *hook) error {
	config := rest.CopyConfig(b.server.Config)
	config.Impersonate.UserName = user
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": value}}
	_, err = client.CoreV1().ConfigMaps(namespace).Create(ctx, made, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case asked == nil && (err == nil || !strings.Contains(err.Error(), "denied the request")):
		return fmt.Errorf("%s of %s in %s: the program of the session did not deny it: %w", name, user, namespace, errors.Join(err))
	case asked == nil && b.original.was(name):
		return fmt.Errorf("%s of %s in %s: the webhook of the cluster was asked, too", name, user, namespace)
	case asked == nil:
		return nil
	case err == nil && !asked.was(name):
		return fmt.Errorf("%s of %s in %s: the webhook of the cluster was not asked", name, user, namespace)
	}
	return err
}

// session is a 'gatehouse dev --live'.
type session struct {
	cmd    *exec.Cmd
	log    string
	marked string
	ended  chan struct{}
}

// start starts a session of a user.
func (b *bench) start(user string, args ...string) (*session, error) {
	dir, err := os.MkdirTemp(b.dir, "session-")
	if err != nil {
		return nil, err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: b.server.Config.Host, CertificateAuthorityData: b.server.Config.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: b.server.Config.BearerToken, Impersonate: user}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &session{log: filepath.Join(dir, "log"), marked: dir, ended: make(chan struct{})}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	all := append([]string{"dev", "--live", "--kubeconfig", kubeconfig, "--service", "hooks/judge", "--webhook-port", port, "--watch", "*.nothing"}, args...)
	s.cmd = exec.Command(b.gatehouse, append(all, "--", own)...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = dir, log, log
	s.cmd.Env = append(os.Environ(), "TMPDIR="+dir, "LIVE_PROGRAM_PORT="+port)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	return s, nil
}

// ready returns an error until the session reports that it is ready.
func (s *session) ready() error {
	data, _ := os.ReadFile(s.log)
	if !strings.Contains(string(data), "gatehouse is ready") {
		return fmt.Errorf("it says: %s", data)
	}
	return nil
}

// end ends a session with a signal.
func (s *session) end(by os.Signal) {
	_ = s.cmd.Process.Signal(by)
	<-s.ended
}

// gone returns an error if a process of the session is still running.
func (s *session) gone() error {
	found, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return err
	}
	for _, p := range found {
		if env, _ := os.ReadFile(p); strings.Contains(string(env), "TMPDIR="+s.marked) {
			return fmt.Errorf("%s is left", filepath.Dir(p))
		}
	}
	return nil
}

// claims verifies that each request goes to the webhook of the session that it belongs to.
func (b *bench) claims(ctx context.Context) error {
	alice, err := b.start("alice")
	if err != nil {
		return err
	}
	defer alice.end(os.Interrupt)
	shop, err := b.start("bob", "--namespace", "shop")
	if err != nil {
		return err
	}
	defer shop.end(os.Interrupt)
	for _, s := range []*session{alice, shop} {
		if err := b.until(ctx, "the session is ready", s.ready); err != nil {
			return err
		}
	}
	for _, c := range []struct {
		user, namespace string
		asked           *hook
	}{
		{"alice", "default", nil}, {"bob", "default", b.original}, {"bob", "shop", nil}, {"carol", "shop", nil}, {"carol", "default", b.original},
	} {
		if c.user == "carol" {
			// A user without rights is rejected before admission.
			c.user = "system:serviceaccount:shop:robot"
			if err := b.grant(ctx, c.user); err != nil {
				return err
			}
		}
		name := "claim-" + strings.ReplaceAll(c.user, ":", "-") + "-" + c.namespace
		if err := b.until(ctx, "it is judged by its own", func() error { return b.create(ctx, c.user, c.namespace, name, "forbidden", c.asked) }); err != nil {
			b.faults = append(b.faults, err)
		}
	}
	fmt.Println("requests of two users, of a namespace and of others were judged by their own")
	alice.end(os.Interrupt)
	shop.end(os.Interrupt)
	return b.until(ctx, "the registrations are as before", func() error { return b.asBefore(ctx) })
}

// grant gives a user all rights.
func (b *bench) grant(ctx context.Context, user string) error {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": "robot"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": []any{map[string]any{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}},
	}}
	_, err := b.client.Resource(schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}).Create(ctx, u, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// kill kills sessions at moments between their start and one second after they are ready.
func (b *bench) kill(ctx context.Context, times int) error {
	begun := time.Now()
	s, err := b.start("alice")
	if err != nil {
		return err
	}
	if err := b.until(ctx, "the session is ready", s.ready); err != nil {
		s.end(os.Interrupt)
		return err
	}
	took := time.Since(begun) + time.Second
	s.end(os.Interrupt)
	var latest time.Duration
	written := 0
	for i := range times {
		s, err := b.start("alice")
		if err != nil {
			return err
		}
		time.Sleep(took * time.Duration(i+1) / time.Duration(times))
		if b.asBefore(ctx) != nil {
			written++
		}
		s.end(syscall.SIGKILL)
		killed := time.Now()
		err = errors.Join(
			b.until(ctx, "the registrations are as before", func() error { return b.asBefore(ctx) }),
			b.until(ctx, "no process is left", s.gone),
			b.until(ctx, "the webhook of the cluster judges", func() error {
				return b.create(ctx, "alice", "default", fmt.Sprint("killed-", i), "forbidden", b.original)
			}),
		)
		latest = max(latest, time.Since(killed))
		if err != nil {
			b.faults = append(b.faults, fmt.Errorf("kill %d: %w", i, err))
		}
	}
	fmt.Printf("%d sessions were killed, %d of them while their registrations were in the cluster; as before after at most %s\n", times, written, latest.Round(100*time.Millisecond))
	return nil
}
