package gatehousetest

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// Option is an option of Start.
type Option func(*options)

type options struct {
	own    bool
	shared bool
	flags  []string
	// elsewhere are the services of ServiceAddress, as NAMESPACE/NAME.
	elsewhere []string
	files     []string
	objects   []runtime.Object
	handler   http.Handler
	noTraces  bool
}

// Own starts a separate server for this test, with flags of 'gatehouse serve' in addition to --test. The start
// takes about half a second. The server stops when the test is over.
func Own(flags ...string) Option {
	return func(o *options) { o.own, o.flags = true, append(o.flags, flags...) }
}

// Shared shares one server among all packages of a 'go test' run that use this option. Their first test starts
// the server, and it ends 5 seconds after the last of their test processes. This saves the start of a server
// for each package. Webhooks and policies of one package apply to the writes of the others, and objects of the
// same name collide: select by namespace.
func Shared() Option {
	return func(o *options) { o.shared = true }
}

// ServiceAddress sends the calls for webhooks of a service to an address, like the flag --service-address: the
// service is NAMESPACE/NAME or NAMESPACE/NAME:PORT, and the address HOST:PORT. Use it for webhooks of another
// program that the test has started. Its certificate must be for NAME.NAMESPACE.svc; [Webhooks] ignores such
// services. The test gets a server of its [Own].
func ServiceAddress(service, address string) Option {
	return func(o *options) {
		Own("--service-address=" + service + "=" + address)(o)
		name, _, _ := strings.Cut(service, ":")
		o.elsewhere = append(o.elsewhere, name)
	}
}

// Manifests creates the objects in files, and in the .yaml, .yml and .json files of directories, before Start
// returns.
func Manifests(paths ...string) Option {
	return func(o *options) { o.files = append(o.files, paths...) }
}

// Objects creates objects before Start returns. Objects of kinds that client-go does not know need apiVersion
// and kind.
func Objects(objects ...runtime.Object) Option {
	return func(o *options) { o.objects = append(o.objects, objects...) }
}

// Webhooks serves webhooks in the test process, from before they are registered until the test is over. Start
// changes the clientConfig of every webhook configuration among the objects of the test, and of every CRD with
// a conversion webhook, to the address in the test process. The path stays, so that the same objects can be
// installed in a cluster unchanged.
func Webhooks(handler http.Handler) Option {
	return func(o *options) { o.handler = handler }
}

// WithoutTraces keeps traces out of the log of the test.
func WithoutTraces() Option { return func(o *options) { o.noTraces = true } }

// Start returns a client configuration of a server, for its administrator. All objects of the options are
// active when it returns. If that is not possible, Start fails the test.
//
// The configuration has no limit on the rate of requests. The caller may change it.
func Start(t testing.TB, opts ...Option) *rest.Config {
	t.Helper()
	o := &options{}
	for _, opt := range opts {
		opt(o)
	}
	s, err := o.server(t)
	if err != nil {
		t.Fatalf("gatehousetest: %v", err)
	}
	test := newRunning(t, s, o)
	if err := test.install(t.Context(), o); err != nil {
		t.Fatalf("gatehousetest: %v", err)
	}
	return rest.CopyConfig(test.config)
}

// As returns a client configuration for another user. The user has the rights of the roles that the test binds
// to the user and to the groups. The configuration is for the server of the test's last Start.
func As(t testing.TB, user string, groups ...string) *rest.Config {
	t.Helper()
	config := rest.CopyConfig(current(t).config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return config
}

// running is a test with a server.
type running struct {
	server *process
	// config is the configuration of the administrator. Its transport logs traces.
	config *rest.Config
	traces *traceLog
	// undo has the functions to call when the test is over, last first.
	undo []func()
}

// tests are the running tests with a server, by name.
var tests sync.Map

func newRunning(t testing.TB, s *process, o *options) *running {
	r := &running{server: s, config: rest.CopyConfig(s.admin)}
	if !o.noTraces {
		r.traces = &traceLog{t: t, server: s}
		r.config.Wrap(r.traces.around)
	}
	tests.Store(t.Name(), r)
	t.Cleanup(func() {
		if r.traces != nil {
			r.traces.end()
		}
		for i := len(r.undo) - 1; i >= 0; i-- {
			r.undo[i]()
		}
		tests.CompareAndDelete(t.Name(), r)
	})
	return r
}

// current returns the server of a test or of its parent test.
func current(t testing.TB) *running {
	t.Helper()
	for name := t.Name(); ; {
		if r, ok := tests.Load(name); ok {
			return r.(*running)
		}
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			t.Fatal("gatehousetest: this test has no server: call Start first")
		}
		name = name[:i]
	}
}
