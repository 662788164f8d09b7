package builtins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/version"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/plugins"
)

// Flags are the flags of a cluster's API server that select its built-in admission plugins.
type Flags struct {
	admission.Selection
	// Configuration has the configurations of the plugins; nil for none.
	Configuration *admission.Configuration
	// Release is the release to emulate; empty for the release of the cluster.
	Release string
}

// judging has the built-in admission plugins that evaluate the requests of a World. They are created when a request
// concerns them.
type judging struct {
	world *offline.World
	// ctx ends the goroutines of the plugins.
	ctx context.Context
	// names are the plugins that run, in order.
	names         []string
	configuration *admission.Configuration
	config        *rest.Config
	transport     http.RoundTripper

	mu    sync.Mutex
	rooms map[string]*room
}

// room has the plugins that evaluate requests in one namespace.
type room struct {
	reading *reading
	client  kubernetes.Interface
	// ended is done if the cluster did not respond.
	ended context.Context
	made  map[string]apiadmission.Interface
}

// deniesAll denies every access. It is used when the rights of the user cannot be read; the verdicts of plugins that need
// them are then unknown.
var deniesAll = authorizerfactory.NewAlwaysDenyAuthorizer()

// patience is the timeout for the cluster's response to a read of a plugin.
const patience = 30 * time.Second

// Enable adds the registries and the built-in admission plugins of a cluster to the plans of its World: the default
// plugins of its release, unless the flags select others. Each plugin reads the objects that it needs as the caller, and
// ends with ctx. The error is about the flags, or comes from the cluster.
func Enable(ctx context.Context, w *offline.World, config *rest.Config, flags Flags) error {
	discover, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	info, err := discover.ServerVersion()
	if err != nil {
		return fmt.Errorf("asking the cluster for its version: %w", err)
	}
	running, parsed := version.ParseGeneric(info.GitVersion)
	known := plugins.Order(admission.Recommended())
	for i := range known {
		row, ok := plugins.Lookup(known[i].Name)
		switch {
		case ok && parsed == nil && running.Major() > 0 && running.Minor() < uint(row.Since):
			known[i].Default = false
		case !ok && !w.Kinds.OfGatehouse() && slices.Contains([]string{admission.InitializersName, admission.GenericWebhookName}, known[i].Name):
			// Current releases of kube-apiserver do not have these plugins.
			known[i].Default = false
		}
	}
	names, err := flags.Names(known)
	if err != nil {
		return err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return err
	}
	prepare(w)
	w.Fields = emulation.FieldsOf(cmp.Or(flags.Release, info.GitVersion))
	c := &judging{
		world: w, ctx: ctx, names: names, configuration: cmp.Or(flags.Configuration, &admission.Configuration{}), config: config, transport: transport,
		rooms: map[string]*room{},
	}
	w.Builtins = c.links
	w.Notes = slices.DeleteFunc(w.Notes, func(note string) bool { return note == offline.WithoutPlugins })
	w.Notes = append(w.Notes, assumed(info.GitVersion, &flags))
	return nil
}

// assumed returns a note about assumed flags of the cluster's server.
func assumed(release string, flags *Flags) string {
	var missing []string
	if len(flags.Control) == 0 {
		if len(flags.Enable) == 0 {
			missing = append(missing, "--enable-admission-plugins")
		}
		if len(flags.Disable) == 0 {
			missing = append(missing, "--disable-admission-plugins")
		}
	}
	if flags.Configuration == nil {
		missing = append(missing, "--admission-control-config-file")
	}
	as := emulation.Behaves("v" + emulation.Release)
	note := "built-in plugins decide as in Kubernetes " + as
	if release != as && (!emulation.Emulates() || !strings.HasPrefix(release, as+".")) {
		note += ", and the cluster runs " + release
	}
	if len(missing) > 0 {
		note += "; the server of the cluster is assumed to run without " + strings.Join(missing, ", ") + " (give them here if it does not)"
	}
	return note
}

// links returns the links of a plan in the order of the plugins: acting, which act on registrations, and the built-in
// plugins that the request concerns.
func (c *judging) links(ctx context.Context, acting []plan.Link, a apiadmission.Attributes, o apiadmission.ObjectInterfaces) ([]plan.Link, error) {
	var list []plan.Link
	for _, name := range c.names {
		if i := slices.IndexFunc(acting, func(l plan.Link) bool { return l.Plugin == name }); i >= 0 {
			list = append(list, acting[i])
			continue
		}
		links, err := c.link(ctx, name, a, o)
		if err != nil {
			return nil, err
		}
		list = append(list, links...)
	}
	return list, nil
}

// link returns the link of a built-in plugin, none if the request does not concern it.
func (c *judging) link(ctx context.Context, name string, a apiadmission.Attributes, o apiadmission.ObjectInterfaces) ([]plan.Link, error) {
	if name == admission.NamespaceLifecycleName {
		plugin := admission.NewNamespaceLifecycle(lifecycleOf{c.world})
		links := admission.Links([]admission.Plugin{{Name: name, Interface: plugin}}, a, o, &admission.PlanOptions{})
		for i := range links {
			if _, err := c.world.Namespace(ctx, a.GetNamespace()); a.GetNamespace() != "" && errors.Is(err, plan.ErrUnknown) {
				links[i].Hidden = strings.TrimPrefix(err.Error(), plan.ErrUnknown.Error()+": ")
			}
		}
		return links, nil
	}
	row, ok := plugins.Lookup(name)
	if !ok || !row.Concerns(a) {
		return nil, nil
	}
	if a.GetUserInfo() == nil {
		// Upstream's plugins read the name of the user, so there must be a user.
		a = apiadmission.NewAttributesRecord(a.GetObject(), a.GetOldObject(), a.GetKind(), a.GetNamespace(), a.GetName(), a.GetResource(),
			a.GetSubresource(), a.GetOperation(), a.GetOperationOptions(), a.IsDryRun(), &user.DefaultInfo{})
	}
	plugin, r, err := c.plugin(ctx, name, a.GetNamespace())
	if err != nil {
		return nil, fmt.Errorf("admission plugin %s: %w", name, err)
	}
	links := admission.Links([]admission.Plugin{{Name: name, Interface: plugin}}, a, o, &admission.PlanOptions{})
	for i := range links {
		if row.Asks {
			links[i].Hidden = c.world.RightsUnknown
		}
		for _, read := range row.ReadsFor(a) {
			if why := r.reading.unread(read.String()); why != "" {
				links[i].Hidden = why
			}
		}
	}
	return links, nil
}

// plugin creates a plugin for the requests in a namespace, and waits until it has read its objects.
func (c *judging) plugin(ctx context.Context, name, namespace string) (apiadmission.Interface, *room, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.rooms[namespace]
	if r == nil {
		ended, failed := context.WithCancelCause(c.ctx)
		r = &room{ended: ended, made: map[string]apiadmission.Interface{}, reading: &reading{
			next: c.transport, namespace: namespace, failed: failed, answers: map[string]*reply{}, listed: map[string]bool{}, forbidden: map[string]string{},
		}}
		config := rest.AnonymousClientConfig(c.config)
		config.TLSClientConfig, config.Transport = rest.TLSClientConfig{}, r.reading
		config.QPS, config.UserAgent = -1, c.config.UserAgent
		config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
		var err error
		if r.client, err = kubernetes.NewForConfig(config); err != nil {
			failed(err)
			return nil, nil, err
		}
		c.rooms[namespace] = r
	}
	if made := r.made[name]; made != nil {
		return made, r, nil
	}
	factory := informers.NewSharedInformerFactoryWithOptions(r.client, 0, informers.WithNamespace(namespace))
	made, err := plugins.New(name, plugins.Options{
		Client: r.client, Informers: factory, Authorizer: deniesAll, Mapper: meta.NewDefaultRESTMapper(nil),
		Version: catalog.EffectiveVersion(), Stopped: c.ctx.Done(), Configuration: c.configuration.Raw,
	})
	if err != nil {
		return nil, nil, err
	}
	factory.StartWithContext(r.ended)
	waiting, cancel := context.WithTimeoutCause(r.ended, patience, errors.New("the cluster does not answer the reads of the plugin"))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	synced := factory.WaitForCacheSyncWithContext(waiting)
	if synced.Err != nil {
		return nil, nil, cmp.Or(context.Cause(ctx), context.Cause(waiting))
	}
	r.made[name] = made
	return made, r, nil
}

// lifecycleOf provides the namespaces of a World.
type lifecycleOf struct{ *offline.World }

// Cached implements admission.Namespaces.
func (lifecycleOf) Cached(string) *corev1.Namespace { return nil }

// Live implements admission.Namespaces.
func (l lifecycleOf) Live(ctx context.Context, name string) (*corev1.Namespace, error) {
	return l.Namespace(ctx, name)
}
