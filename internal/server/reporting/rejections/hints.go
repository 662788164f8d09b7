package rejections

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/apis/core"

	engine "github.com/gatehouse-dev/gatehouse/admission"
)

// The reasons of hints: no controller acts on an object, or there is no node for a pod.
const (
	NoController = "NoController"
	NoNode       = "NoNode"
)

const (
	// maxHints bounds the hints that are not written yet. Hints are for people who experiment, and
	// not for load tests: after a burst of hintBurst hints, one hint is written in each hintEvery.
	maxHints             = 64
	hintBurst, hintEvery = 20, time.Second
	// An object is stored a moment after its admission. write looks for it repeatedly until hintWait is
	// over.
	hintWait, hintAgain = 2 * time.Second, 100 * time.Millisecond
)

// hint is an event about an object without a controller.
type hint struct {
	rejection
	pod bool
}

// Hinting returns admission that decides like next. When an object of a resource in missing is
// stored, it gets an event with the text from missing. A pod gets an event only if there is no
// node.
func (t *Teller) Hinting(next engine.Passes, missing map[schema.GroupResource]string) engine.Passes {
	return hinting{next, t, missing, rate.NewLimiter(rate.Every(hintEvery), hintBurst)}
}

type hinting struct {
	engine.Passes
	teller  *Teller
	missing map[schema.GroupResource]string
	limit   *rate.Limiter
}

func (h hinting) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	err := h.Passes.Validate(ctx, a, o)
	if err == nil && a.GetOperation() == admission.Create && a.GetSubresource() == "" && !a.IsDryRun() {
		h.note(a)
	}
	return err
}

// note queues a hint about an object that is about to be stored. It does not block.
func (h hinting) note(a admission.Attributes) {
	text, ok := h.missing[a.GetResource().GroupResource()]
	pod, isPod := a.GetObject().(*core.Pod)
	if !ok || isPod && pod.Spec.NodeName != "" {
		return
	}
	object, err := meta.Accessor(a.GetObject())
	if err != nil || object.GetUID() == "" || !h.limit.Allow() {
		return
	}
	one := hint{pod: isPod, rejection: rejection{namespace: object.GetNamespace(), reason: NoController, message: text}}
	if isPod {
		one.reason = NoNode
	}
	one.owner.APIVersion, one.owner.Kind = a.GetKind().ToAPIVersionAndKind()
	one.owner.Name, one.owner.UID = object.GetName(), object.GetUID()
	select {
	case h.teller.hints <- one:
	default:
	}
}

// writeHints writes the events of hints until ctx ends.
func (t *Teller) writeHints(ctx context.Context, o *owners) {
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-t.hints:
			if err := t.write(ctx, o, &h); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).V(2).Info("Could not write an event about an object that nothing acts on", "object", h.owner.UID, "err", err)
			}
		}
	}
}

// write writes the event of a hint when its object is stored. The name of the event is the same
// for the same object, so that each object gets one event.
func (t *Teller) write(ctx context.Context, o *owners, h *hint) error {
	if h.pod {
		nodes, err := t.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil || len(nodes.Items) > 0 {
			return err
		}
	}
	k := key{h.namespace, h.owner.UID, schema.FromAPIVersionAndKind(h.owner.APIVersion, h.owner.Kind), h.owner.Name}
	var ref *corev1.ObjectReference
	var err error
	_ = wait.PollUntilContextTimeout(ctx, hintAgain, hintWait, true, func(ctx context.Context) (bool, error) {
		ref, err = o.read(ctx, k)
		return err == nil, nil
	})
	if err != nil {
		return err
	}
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cmp.Or(ref.Namespace, metav1.NamespaceDefault),
			Name:      fmt.Sprintf("%.200s.%s", ref.Name, ref.UID),
		},
		InvolvedObject: *ref, Type: corev1.EventTypeWarning, Reason: h.reason, Message: h.message, Count: 1,
		FirstTimestamp: now, LastTimestamp: now, Source: corev1.EventSource{Component: "gatehouse"}, ReportingController: "gatehouse",
	}
	if _, err = t.client.CoreV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
