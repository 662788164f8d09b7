package offline

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/crdschema"
)

// cluster reads the objects of a cluster that the caller may read.
type cluster struct {
	objects dynamic.Interface
	// uninitialized also reads objects that wait for initializers.
	uninitialized dynamic.Interface
	kinds         *Kinds
	engines       Engines
	client        kubernetes.Interface
	// defined has a *sync.Once for each schema.GroupKind whose CRD was requested.
	defined sync.Map
}

// Discover returns the kinds of a cluster. The error reports that the cluster does not respond.
func Discover(config *rest.Config) (*Kinds, error) {
	discover, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	lists, err := resources(discover)
	if len(lists) == 0 && err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	k, failure := NewKinds(lists)
	if failure == nil && err != nil {
		k.incomplete = err.Error()
	}
	return k, failure
}

// resources returns the resources that discovery lists, in the cluster's order of groups and versions. Equivalent
// resources are tried in this order. There may be resources together with an error.
func resources(discover discovery.DiscoveryInterface) ([]*metav1.APIResourceList, error) {
	groups, lists, err := discover.ServerGroupsAndResources()
	places := map[string]int{}
	for _, g := range groups {
		for _, v := range g.Versions {
			places[v.GroupVersion] = len(places)
		}
	}
	slices.SortFunc(lists, func(a, b *metav1.APIResourceList) int { return places[a.GroupVersion] - places[b.GroupVersion] })
	return lists, err
}

// Connect makes a World of a cluster. kinds are the result of Discover. Connect only reads, and objects that the caller
// may not read are hidden in the World. The error reports that the cluster does not respond.
func Connect(ctx context.Context, config *rest.Config, kinds *Kinds) (*World, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	c := &cluster{kinds: kinds, client: client}
	if c.objects, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	c.engines.objects, c.engines.kinds = c.objects, kinds
	all := rest.CopyConfig(config)
	all.Wrap(func(next http.RoundTripper) http.RoundTripper { return uninitialized{next} })
	if c.uninitialized, err = dynamic.NewForConfig(all); err != nil {
		return nil, err
	}
	w := &World{
		cluster: c,
		Kinds:   kinds, Hidden: map[registration.Source]string{}, Stored: c.stored, Namespace: c.namespace, Params: clusterParams{c},
		UserUnknown: "the user is not known: name one with --as", RightsUnknown: "cannot ask the server for the rights of the user",
		Notes: []string{WithoutPlugins},
	}
	if kinds.incomplete != "" {
		w.Notes = append(w.Notes, "some kinds are not known: "+kinds.incomplete)
	}
	if w.Registrations, err = snapshot.NewClientReader(client.RESTClient()).Read(ctx, ""); err != nil {
		return nil, err
	}
	w.Registrations.Kubernetes = !kinds.OfGatehouse()
	for _, d := range registration.Sources() {
		if slices.Contains(w.Registrations.Forbidden, d.Kind) {
			w.Hidden[d.Source] = "may not list " + d.Resource
		}
	}
	if err := c.older(ctx, w); err != nil {
		return nil, err
	}
	return w, nil
}

// WithoutPlugins is a note of plans without built-in admission plugins.
const WithoutPlugins = "built-in plugins of the server are not part of this plan"

// Caller returns the user of config as the cluster authenticates it, nil if the cluster does not tell.
func Caller(ctx context.Context, config *rest.Config) user.Info {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil
	}
	u := review.Status.UserInfo
	info := &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups}
	for key, values := range u.Extra {
		if info.Extra == nil {
			info.Extra = map[string][]string{}
		}
		info.Extra[key] = values
	}
	return info
}

// stored gets an object in the version of kind.
func (c *cluster) stored(ctx context.Context, kind *Kind, namespace, name string) (*unstructured.Unstructured, error) {
	client := dynamic.ResourceInterface(c.objects.Resource(kind.Resource))
	if kind.Namespaced {
		client = c.objects.Resource(kind.Resource).Namespace(namespace)
	}
	return client.Get(ctx, name, metav1.GetOptions{})
}

// Stored gets the stored object of a request from a cluster.
func Stored(ctx context.Context, config *rest.Config, q *Request) (*unstructured.Unstructured, error) {
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return (&cluster{objects: objects}).stored(ctx, q.Kind, q.Namespace, q.Name)
}

func (c *cluster) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	u, err := c.objects.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("%w: may not get namespace %s", plan.ErrUnknown, name)
	case err != nil:
		return nil, err
	}
	namespace := &corev1.Namespace{}
	return namespace, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, namespace)
}

// define reads the CRD of a kind, once.
func (c *cluster) define(ctx context.Context, kind *Kind) {
	once, _ := c.defined.LoadOrStore(kind.Kind.GroupKind(), &sync.Once{})
	once.(*sync.Once).Do(func() { c.readDefinition(ctx, kind) })
}

func (c *cluster) readDefinition(ctx context.Context, kind *Kind) {
	id := kind.Kind.GroupKind()
	resource := schema.GroupVersionResource{Group: definitions.Group, Version: "v1", Resource: "customresourcedefinitions"}
	u, err := c.objects.Resource(resource).Get(ctx, kind.Resource.GroupResource().String(), metav1.GetOptions{})
	switch {
	case err == nil:
		c.kinds.defined.Store(id, definedBy(u))
	case apierrors.IsForbidden(err):
		c.kinds.defined.Store(id, c.published(id))
	case apierrors.IsNotFound(err):
		// An aggregated server has the kind.
		c.kinds.defined.Store(id, &defined{unread: "the definition of its kind is not there"})
	}
}

// published returns the content of a CRD that the caller may not read, as far as the OpenAPI of the cluster has it.
func (c *cluster) published(id schema.GroupKind) *defined {
	none := &defined{unread: "may not get customresourcedefinitions"}
	made := &crdschema.Kind{Group: id.Group, Kind: id.Kind}
	paths, err := c.client.Discovery().OpenAPIV3().Paths()
	if err != nil {
		return none
	}
	for _, known := range c.kinds.list {
		if known.Kind.GroupKind() != id {
			continue
		}
		made.Plural, made.Namespaced = known.Resource.Resource, known.Namespaced
		at := paths["apis/"+known.Kind.GroupVersion().String()]
		if at == nil {
			return none
		}
		document, err := at.Schema(runtime.ContentTypeJSON)
		if err != nil {
			return none
		}
		schemas, err := crdschema.OpenAPI(document)
		if err != nil || schemas[known.Kind] == nil {
			return none
		}
		made.Versions = append(made.Versions, crdschema.Version{Name: known.Kind.Version, Schema: schemas[known.Kind], Status: !known.Takes("status").Empty()})
	}
	d := definedBy(made.Definition())
	// Nothing shows whether a webhook converts the versions.
	d.converts = len(made.Versions) == 1
	return d
}

// older adds notes about kinds of admission policies that the cluster has objects of, and serves only in an older
// version. Plans do not include these.
func (c *cluster) older(ctx context.Context, w *World) error {
	for _, source := range []registration.Source{registration.MutatingPolicies, registration.ValidatingPolicies} {
		d := source.Descriptor()
		gvr, ok := c.kinds.Served(registration.GroupName, d.Resource)
		if !ok || !slices.Contains(w.Registrations.Disabled, d.Kind) || slices.Contains(w.Registrations.Forbidden, d.Kind) {
			continue
		}
		list, err := c.objects.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1})
		switch {
		case apierrors.IsForbidden(err):
			w.Hidden[source] = "may not list " + d.Resource
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("listing %s: %w", d.Resource, err)
		case err == nil && len(list.Items) > 0:
			w.Hidden[source] = fmt.Sprintf("the cluster has %s in version %s only, which is not read", d.Resource, gvr.Version)
		}
	}
	return nil
}
