package plugins

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	apiadmission "k8s.io/apiserver/pkg/admission"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
)

// Upstream's plugins iterate over maps in random order, so the quota that rejects a request, and the first part
// of LimitRanger's message, vary. Here the order is by names and texts, so that equal requests get equal
// responses.

// registerLimitRanger registers upstream's plugin.
func registerLimitRanger(p *apiadmission.Plugins) {
	p.Register(limitranger.PluginName, func(io.Reader) (apiadmission.Interface, error) {
		return limitranger.NewLimitRanger(orderedLimits{&limitranger.DefaultLimitRangerActions{}})
	})
}

type orderedLimits struct{ limitranger.LimitRangerActions }

// ValidateLimit overrides the method of LimitRangerActions.
func (o orderedLimits) ValidateLimit(r *corev1.LimitRange, resource string, object runtime.Object) error {
	err := o.LimitRangerActions.ValidateLimit(r, resource, object)
	var found utilerrors.Aggregate
	if !errors.As(err, &found) {
		return err
	}
	list := slices.Clone(found.Errors())
	for rest := list; len(rest) > 0; {
		n := ofOneMap(rest)
		slices.SortFunc(rest[:n], func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
		rest = rest[n:]
	}
	return utilerrors.NewAggregate(list)
}

// ofOneMap counts the errors at the beginning of a list that come from one map: the minima, the maxima or the
// ratios of one container or pod, each for another resource. Upstream checks these maps in a fixed order.
func ofOneMap(list []error) int {
	of, _ := limited(list[0])
	seen := map[string]bool{}
	for i, err := range list {
		what, resource := limited(err)
		if what != of || seen[resource] {
			return i
		}
		seen[resource] = true
	}
	return len(list)
}

// limited returns the kind of limit that an error is about, and the resource: "minimum cpu usage per
// Container is ...", or "cpu max limit to request ratio per Container is ...".
func limited(err error) (what, resource string) {
	before, after, _ := strings.Cut(err.Error(), " per ")
	object, _, _ := strings.Cut(after, " ")
	first, rest, _ := strings.Cut(before, " ")
	if first == "minimum" || first == "maximum" {
		resource, _, _ = strings.Cut(rest, " ")
		return first + " per " + object, resource
	}
	return rest + " per " + object, first
}

// byName is an indexer that lists the objects of a namespace in the order of their names.
type byName struct{ cache.Indexer }

// Index implements cache.Indexer.
func (b byName) Index(index string, of any) ([]any, error) {
	list, err := b.Indexer.Index(index, of)
	slices.SortFunc(list, func(a, b any) int {
		return cmp.Compare(a.(metav1.Object).GetName(), b.(metav1.Object).GetName())
	})
	return list, err
}

type orderedLimitRanges struct {
	limitRangeInformer
}

func (i orderedLimitRanges) Lister() listersv1.LimitRangeLister {
	return listersv1.NewLimitRangeLister(byName{i.Informer().GetIndexer()})
}

type orderedQuotas struct {
	quotaInformer
}

func (i orderedQuotas) Lister() listersv1.ResourceQuotaLister {
	return listersv1.NewResourceQuotaLister(byName{i.Informer().GetIndexer()})
}
