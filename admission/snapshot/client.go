package snapshot

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// ClientReader reads webhook configurations, policies, bindings and initializers from an API
// server: the server that contains it, or the main server of a cluster (S9.15). It lists each kind
// with its own consistent LIST, all at the same time. It is safe for concurrent use.
type ClientReader struct {
	client rest.Interface
	seed   maphash.Seed
}

// NewClientReader returns a ClientReader. The client's group and version do not matter; it needs
// permission to list the kinds of registration.Sources.
func NewClientReader(client rest.Interface) *ClientReader {
	return &ClientReader{client: client, seed: maphash.MakeSeed()}
}

// list is the result of listing one kind.
type list struct {
	registration.Descriptor
	revision  string
	items     json.RawMessage
	disabled  bool
	forbidden bool
	err       error
}

// Read implements Reader. A kind for which the server responds with 404 or 403 is disabled
// (S11.12). Policies and bindings that the server has only in v1beta1 are read in that version
// (S26.14). If nothing has changed since the last read, Read decodes no objects. The error names
// the first kind that could not be listed.
func (c *ClientReader) Read(ctx context.Context, since Version) (Registrations, error) {
	kinds := registration.Sources()
	lists := make([]list, len(kinds))
	var all sync.WaitGroup
	for i, k := range kinds {
		all.Go(func() { lists[i] = c.list(ctx, k) })
	}
	all.Wait()

	var r Registrations
	var h maphash.Hash
	h.SetSeed(c.seed)
	for i := range lists {
		l := &lists[i]
		if l.err != nil {
			return Registrations{}, fmt.Errorf("listing %s: %w", l.Resource, l.err)
		}
		if l.disabled {
			r.Disabled = append(r.Disabled, l.Kind)
		}
		if l.forbidden {
			r.Forbidden = append(r.Forbidden, l.Kind)
		}
		h.WriteString(l.Kind)
		h.Write(l.items)
		r.Revision = earlier(r.Revision, l.revision)
	}
	r.Version = Version(strconv.FormatUint(h.Sum64(), 36))
	if r.Unchanged = r.Version == since; r.Unchanged {
		return r, nil
	}
	for i := range lists {
		if err := lists[i].decode(&r.Objects); err != nil {
			return Registrations{}, fmt.Errorf("reading the list of %s: %w", lists[i].Resource, err)
		}
	}
	return r, nil
}

func (c *ClientReader) list(ctx context.Context, k registration.Descriptor) list {
	l := c.listVersion(ctx, k, k.Versions[0])
	if l.disabled && !l.forbidden && (k.Policies || k.Binds) {
		// The release has policies in beta only, with the same fields.
		return c.listVersion(ctx, k, "v1beta1")
	}
	return l
}

func (c *ClientReader) listVersion(ctx context.Context, k registration.Descriptor, version string) list {
	l := list{Descriptor: k}
	// A list without a resourceVersion is consistent.
	body, err := c.client.Get().
		AbsPath("/apis", registration.GroupName, version, k.Resource).
		SetHeader("Accept", "application/json").
		Do(ctx).Raw()
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		l.disabled, l.forbidden = true, apierrors.IsForbidden(err)
		return l
	}
	if err != nil {
		l.err = err
		return l
	}
	var content struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items json.RawMessage `json:"items"`
	}
	l.err = json.Unmarshal(body, &content)
	l.revision, l.items = content.Metadata.ResourceVersion, content.Items
	return l
}

// decode appends the objects of the list. The objects themselves need not have a kind and version.
func (l *list) decode(objects *[]runtime.Object) error {
	if len(l.items) == 0 {
		return nil
	}
	var items []any
	// utiljson distinguishes integers from other numbers.
	if err := utiljson.Unmarshal(l.items, &items); err != nil {
		return err
	}
	*objects = slices.Grow(*objects, len(items))
	for i, item := range items {
		content, ok := item.(map[string]any)
		if !ok {
			return fmt.Errorf("item %d is not an object", i)
		}
		content["apiVersion"] = registration.GroupName + "/" + l.Versions[0]
		content["kind"] = l.Kind
		obj, err := registration.FromContent(content)
		if err != nil {
			return err
		}
		*objects = append(*objects, obj)
	}
	return nil
}

// earlier returns the earlier of two revisions, which are numbers in practice. An empty revision
// does not count. Lists of two revisions together contain every write up to the earlier one.
func earlier(a, b string) string {
	if a == "" || b != "" && cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(b, a)) < 0 {
		return b
	}
	return a
}
