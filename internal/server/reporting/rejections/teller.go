package rejections

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	engine "github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/kit/credentials"
)

const (
	// Reason is the reason of the events.
	Reason = "FailedAdmission"
	// TraceAnnotation is the annotation of an event that names the trace of the request, or of
	// the latest request when events were combined.
	TraceAnnotation = "gatehouse.dev/trace"
)

const (
	// maxWaiting bounds the rejections that are not written yet.
	maxWaiting = 256
	// maxMessage bounds the message of an event, in bytes, as the API of events does.
	maxMessage = 1024
	// knownFor is how long a Teller caches whether an owner exists, and maxKnown for how many
	// owners.
	knownFor, maxKnown = 10 * time.Second, 1024
	// The limit of events about one owner: a burst, then one in every.
	burst, every = 25, 5 * time.Minute
)

// Teller writes events for owners. It is safe for concurrent use.
type Teller struct {
	client   kubernetes.Interface
	metadata metadata.Interface
	waiting  chan rejection
	hints    chan hint
}

// rejection is a create that admission rejected.
type rejection struct {
	namespace string
	owner     metav1.OwnerReference
	message   string
	trace     string
	// about, unless nil, is the object of the event, instead of an owner. resource and reason are
	// set with it.
	about    *corev1.ObjectReference
	resource schema.GroupResource
	reason   string
}

// New returns a Teller that reads owners and writes events with the clients.
func New(client kubernetes.Interface, metadata metadata.Interface) *Teller {
	return &Teller{client: client, metadata: metadata, waiting: make(chan rejection, maxWaiting), hints: make(chan hint, maxHints)}
}

// Around returns admission that decides like next, and queues events for the owners of objects
// whose creates next rejects. Dry runs are left out.
func (t *Teller) Around(next engine.Passes) engine.Passes { return around{next, t} }

type around struct {
	engine.Passes
	teller *Teller
}

func (r around) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	err := r.Passes.Admit(ctx, a, o)
	if err != nil {
		r.teller.note(ctx, a, err)
	}
	return err
}

func (r around) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	err := r.Passes.Validate(ctx, a, o)
	if err != nil {
		r.teller.note(ctx, a, err)
	}
	return err
}

// note queues a rejection if its object has an owner that gets an event. It does not block.
func (t *Teller) note(ctx context.Context, a admission.Attributes, err error) {
	if a.GetOperation() != admission.Create || a.GetSubresource() != "" || a.IsDryRun() || a.GetObject() == nil {
		return
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		// The client hung up: the error is not about the object.
		return
	}
	object, accessErr := meta.Accessor(a.GetObject())
	if accessErr != nil {
		return
	}
	owner := metav1.GetControllerOf(object)
	resource := a.GetResource().GroupResource()
	if owner == nil || a.GetUserInfo() != nil && reportsAs(resource, owner, a.GetUserInfo().GetName()) {
		return
	}
	happened := "failed"
	if rejected(err) {
		happened = "was rejected"
	}
	secret := credentials.Whole(resource, a.GetSubresource())
	r := rejection{namespace: a.GetNamespace(), owner: *owner, message: message(a.GetKind().Kind, happened, object, secret, err)}
	if followed := trace.FromContext(ctx); followed != nil {
		r.trace = followed.ID
	}
	t.queue(r)
}

// maxOwners bounds the owners of one object that get an event.
const maxOwners = 32

// Initializer queues an event for every owner of an object that an initializer rejected, except
// owners whose controller writes one (S11.66). initializer is the quoted name. Initializer does
// not block.
func (t *Teller) Initializer(resource schema.GroupResource, object metav1.Object, initializer string, err error) {
	text := message(resource.String(), "was rejected by initializer "+initializer, object, credentials.Whole(resource, ""), err)
	owners := object.GetOwnerReferences()
	for i := range owners[:min(len(owners), maxOwners)] {
		controls := owners[i].Controller != nil && *owners[i].Controller
		if _, reports := reporterOf(resource, &owners[i]); !controls || !reports {
			t.queue(rejection{namespace: object.GetNamespace(), owner: owners[i], message: text})
		}
	}
}

func (t *Teller) queue(r rejection) {
	select {
	case t.waiting <- r:
	default:
		klog.V(2).InfoS("Dropping an event: too many events wait", "message", r.message)
	}
}

// reporter is a controller that itself writes events on owners of one kind when its creates of a
// resource fail.
type reporter struct {
	account  string
	resource schema.GroupResource
}

var reporters = map[schema.GroupKind]reporter{
	{Kind: "ReplicationController"}:      {"replication-controller", schema.GroupResource{Resource: "pods"}},
	{Group: "apps", Kind: "ReplicaSet"}:  {"replicaset-controller", schema.GroupResource{Resource: "pods"}},
	{Group: "apps", Kind: "DaemonSet"}:   {"daemon-set-controller", schema.GroupResource{Resource: "pods"}},
	{Group: "apps", Kind: "StatefulSet"}: {"statefulset-controller", schema.GroupResource{Resource: "pods"}},
	{Group: "batch", Kind: "Job"}:        {"job-controller", schema.GroupResource{Resource: "pods"}},
	{Group: "apps", Kind: "Deployment"}:  {"deployment-controller", schema.GroupResource{Group: "apps", Resource: "replicasets"}},
	{Group: "batch", Kind: "CronJob"}:    {"cronjob-controller", schema.GroupResource{Group: "batch", Resource: "jobs"}},
}

// reporterOf returns the controller that itself writes an event on an owner when its create of an
// object of a resource fails.
func reporterOf(resource schema.GroupResource, owner *metav1.OwnerReference) (r reporter, ok bool) {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return r, false
	}
	r, ok = reporters[schema.GroupKind{Group: gv.Group, Kind: owner.Kind}]
	return r, ok && r.resource == resource
}

// reportsAs reports whether a user is such a controller.
func reportsAs(resource schema.GroupResource, owner *metav1.OwnerReference, name string) bool {
	r, ok := reporterOf(resource, owner)
	return ok && (name == user.KubeControllerManager || name == serviceaccount.MakeUsername(metav1.NamespaceSystem, r.account))
}

// About queues a warning about an object of a resource. The object may be deleted already. About
// does not block.
func (t *Teller) About(resource schema.GroupResource, object metav1.Object, reason, message string) {
	t.queue(rejection{resource: resource, reason: reason, message: trace.Cut(message, maxMessage), about: &corev1.ObjectReference{
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
	}})
}

// message returns the text of an event about an object of a kind: what happened, and why. It is the
// same for all objects of one template, so that equal events can be counted in one. secret is set
// if the reason must stay out.
func message(kind, happened string, object metav1.Object, secret bool, err error) string {
	name := object.GetName()
	if prefix := object.GetGenerateName(); prefix != "" {
		name = prefix + "*"
	}
	why := err.Error()
	if prefix, made := object.GetGenerateName(), object.GetName(); prefix != "" && len(made) > len(prefix) && strings.HasPrefix(made, prefix) {
		// Plugins name the object, and each try has another name.
		why = strings.ReplaceAll(why, made, name)
	}
	if secret {
		// The webhook may quote the object that it got.
		why = "see the answer to the request"
	}
	why = credentials.Text(why)
	return trace.Cut(fmt.Sprintf("Create of %s %q %s: %s", kind, name, happened, why), maxMessage)
}

// rejected reports whether a webhook or plugin rejected the object. Otherwise a webhook could not
// be called, or a plugin failed.
func rejected(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code < 500
}

// Run writes events until ctx ends.
func (t *Teller) Run(ctx context.Context) {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{
		BurstSize: burst, QPS: float32(1 / every.Seconds()),
	}))
	defer broadcaster.Shutdown()
	sink := broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: t.client.CoreV1().Events("")})
	defer sink.Stop()
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "gatehouse"})
	owners := &owners{
		mapper:   restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(t.client.Discovery())),
		metadata: t.metadata, known: cache.NewLRUExpireCache(maxKnown),
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		defer utilruntime.HandleCrash()
		t.writeHints(ctx, owners)
	})
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-t.waiting:
			if r.about != nil {
				kind, err := owners.mapper.KindFor(r.resource.WithVersion(""))
				if err != nil {
					klog.FromContext(ctx).Error(err, "Cannot write an event: the kind of its object is not known", "resource", r.resource, "reason", r.reason)
					continue
				}
				r.about.APIVersion, r.about.Kind = kind.ToAPIVersionAndKind()
				recorder.Event(r.about, corev1.EventTypeWarning, r.reason, r.message)
				continue
			}
			ref := owners.find(ctx, &r)
			if ref == nil {
				continue
			}
			annotations := map[string]string{}
			if r.trace != "" {
				annotations[TraceAnnotation] = r.trace
			}
			recorder.AnnotatedEventf(ref, annotations, corev1.EventTypeWarning, Reason, "%s", r.message)
		}
	}
}

// owners finds owners. An object may name an owner that does not exist: an event is written only
// about an existing owner.
type owners struct {
	mapper   *restmapper.DeferredDiscoveryRESTMapper
	metadata metadata.Interface
	// known has the references to owners that were found lately, nil for owners that were not
	// found.
	known *cache.LRUExpireCache
}

// key identifies an owner as an object in a namespace names it.
type key struct {
	namespace string
	uid       types.UID
	owner     schema.GroupVersionKind
	name      string
}

// find returns a reference to the owner, nil when the owner does not exist.
func (o *owners) find(ctx context.Context, r *rejection) *corev1.ObjectReference {
	gv, err := schema.ParseGroupVersion(r.owner.APIVersion)
	if err != nil {
		return nil
	}
	k := key{r.namespace, r.owner.UID, gv.WithKind(r.owner.Kind), r.owner.Name}
	if found, ok := o.known.Get(k); ok {
		return found.(*corev1.ObjectReference)
	}
	ref, err := o.read(ctx, k)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Could not find the owner for an event about a rejected create", "owner", r.owner.UID, "err", err)
	}
	o.known.Add(k, ref, knownFor)
	return ref
}

func (o *owners) read(ctx context.Context, k key) (*corev1.ObjectReference, error) {
	mapping, err := o.mapper.RESTMapping(k.owner.GroupKind(), k.owner.Version)
	if meta.IsNoMatchError(err) {
		// The kind may be newer than the mapper's list of kinds.
		o.mapper.Reset()
		mapping, err = o.mapper.RESTMapping(k.owner.GroupKind(), k.owner.Version)
	}
	if err != nil {
		return nil, err
	}
	namespace := k.namespace
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		namespace = ""
	} else if namespace == "" {
		return nil, errors.New("a cluster-scoped object cannot have an owner in a namespace")
	}
	found, err := o.metadata.Resource(mapping.Resource).Namespace(namespace).Get(ctx, k.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if found.UID != k.uid {
		return nil, fmt.Errorf("%s %q has another uid", k.owner.Kind, k.name)
	}
	return &corev1.ObjectReference{
		APIVersion: k.owner.GroupVersion().String(), Kind: k.owner.Kind, Namespace: namespace, Name: k.name, UID: k.uid,
		ResourceVersion: found.ResourceVersion,
	}, nil
}
