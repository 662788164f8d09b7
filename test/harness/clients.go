package harness

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Tokens are the users of the shared server with their groups. The token of alice is alice-token.
var Tokens = map[string][]string{
	"alice": {"devs"},
	"bob":   {"devs", "ops"},
	"carol": nil,
}

func tokenFile() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(Tokens)) {
		fmt.Fprintf(&b, "%s-token,%s,uid-%s,%q\n", name, name, name, strings.Join(Tokens[name], ","))
	}
	return b.String()
}

// WithToken returns a configuration that authenticates with a bearer token.
func (s *Server) WithToken(token string) *rest.Config {
	c := rest.AnonymousClientConfig(s.Admin)
	c.BearerToken = token
	return c
}

// As returns the administrator's configuration, impersonating a user.
func (s *Server) As(user string, groups ...string) *rest.Config {
	c := rest.CopyConfig(s.Admin)
	c.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return c
}

// Protobuf returns a copy of the configuration that uses protobuf.
func Protobuf(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.ContentType = runtime.ContentTypeProtobuf
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return c
}

// Client returns a typed client.
func Client(t testing.TB, c *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Dynamic returns a client for unstructured objects.
func Dynamic(t testing.TB, c *rest.Config) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Namespace creates a namespace for the test, and the service account that its pods need. Nothing deletes it:
// the server's data is removed with the server.
func (s *Server) Namespace(t testing.TB) string {
	t.Helper()
	ns := s.EmptyNamespace(t)
	s.Account(t, ns)
	return ns
}

// EmptyNamespace is Namespace without the service account, for tests that list all objects in the namespace.
// If the server runs the service account controller, the account appears soon.
func (s *Server) EmptyNamespace(t testing.TB) string {
	t.Helper()
	ns, err := Client(t, s.Admin).CoreV1().Namespaces().Create(Context(t),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// Account creates the service account "default" in a namespace, unless it exists, so that the controller does
// not create it later, between the requests of a test.
func (s *Server) Account(t testing.TB, namespace string) {
	t.Helper()
	_, err := Client(t, s.Admin).CoreV1().ServiceAccounts(namespace).Create(Context(t),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}
