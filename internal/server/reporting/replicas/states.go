package replicas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/admission/announce"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/registrations"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas/v1alpha1"
)

// Resource is the plural under which RegistrationStates are served.
const Resource = "registrationstates"

// States is a storage of RegistrationStates, which can be read only. It is safe
// for concurrent use.
type States struct {
	resources.Computed
	etcd        clientv3.KV
	prefix      string
	mark        string
	collections []registrations.Collection
	about       About
}

// About has functions that return the problems of a registration and the costs of its expressions, as
// known to the server that answers.
type About struct {
	Problems func(ctx context.Context, resource, name string) []v1alpha1.Problem
	Costs    func(resource, name string) []v1alpha1.ExpressionCost
}

// NewStates returns the states of the registrations below root. The servers are
// announced below prefix, and mark is the key that every write of a registration
// sets.
func NewStates(etcd clientv3.KV, root, prefix, mark string, about About) *States {
	return &States{etcd: etcd, prefix: prefix + "/", mark: mark, about: about, collections: registrations.Collections(root), Computed: resources.Computed{
		Object:   func() runtime.Object { return &v1alpha1.RegistrationState{} },
		List:     func() runtime.Object { return &v1alpha1.RegistrationStateList{} },
		Singular: "registrationstate",
	}}
}

var (
	_ rest.Getter = (*States)(nil)
	_ rest.Lister = (*States)(nil)
)

// Get implements rest.Getter. The read is consistent: it finds a registration whose write was
// acknowledged. It finds a deleted registration as long as a server enforces it.
func (s *States) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	resource, object, ok := strings.Cut(name, ".")
	i := slices.IndexFunc(s.collections, func(c registrations.Collection) bool { return c.Resource == resource })
	if !ok || i < 0 || object == "" {
		return nil, notFound(name)
	}
	found, err := s.read(ctx, name, func(revision int64) []clientv3.Op {
		return []clientv3.Op{clientv3.OpGet(s.collections[i].Prefix+object, clientv3.WithKeysOnly(), clientv3.WithRev(revision))}
	})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, notFound(name)
	}
	return &found[0], nil
}

func notFound(name string) error {
	return apierrors.NewNotFound(v1alpha1.SchemeGroupVersion.WithResource(Resource).GroupResource(), name)
}

// List implements rest.Lister. It supports the field selector metadata.name.
func (s *States) List(ctx context.Context, o *metainternalversion.ListOptions) (runtime.Object, error) {
	found, err := s.read(ctx, "", func(revision int64) []clientv3.Op {
		var ops []clientv3.Op
		for _, c := range s.collections {
			ops = append(ops, clientv3.OpGet(c.Prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithRev(revision)))
		}
		return ops
	})
	if err != nil {
		return nil, err
	}
	if o != nil && (o.FieldSelector != nil || o.LabelSelector != nil) {
		found = slices.DeleteFunc(found, func(state v1alpha1.RegistrationState) bool {
			return o.FieldSelector != nil && !o.FieldSelector.Matches(fields.Set{"metadata.name": state.Name}) ||
				o.LabelSelector != nil && !o.LabelSelector.Matches(labels.Set(nil))
		})
	}
	return &v1alpha1.RegistrationStateList{Items: found}, nil
}

// versions are the revisions at which registrations were last modified, by the
// names of their states.
type versions map[string]int64

// server is a server that has announced itself.
type server struct {
	name string
	announce.Announcement
	// enforces are the registrations that the server evaluates requests against. It is nil when the
	// server has taken in the latest write, and so enforces the stored registrations.
	enforces versions
}

// ignores reports whether the server enforces no registration of the resource in the name of a
// state.
func (s *server) ignores(name string) bool {
	resource, _, _ := strings.Cut(name, ".")
	return slices.Contains(s.Off, resource)
}

// static is the revision of the registrations of manifest files.
const static = -1

// read returns the states of the registrations that the operations get, and of the registrations of
// manifest files. If wanted is set, read returns only the registration of this name from the
// manifest files.
func (s *States) read(ctx context.Context, wanted string, at func(revision int64) []clientv3.Op) ([]v1alpha1.RegistrationState, error) {
	ops := append([]clientv3.Op{clientv3.OpGet(s.mark), clientv3.OpGet(s.prefix, clientv3.WithPrefix())}, at(0)...)
	response, err := s.etcd.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("reading what servers announce: %w", err))
	}
	var last int64
	if kvs := response.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		last = kvs[0].ModRevision
	}
	stored := s.versions(response, 2)
	var servers []server
	names := maps.Clone(stored)
	for _, kv := range response.Responses[1].GetResponseRange().Kvs {
		one := server{name: path.Base(string(kv.Key))}
		if err := json.Unmarshal(kv.Value, &one.Announcement); err != nil {
			return nil, apierrors.NewInternalError(fmt.Errorf("reading what server %s announces: %w", one.name, err))
		}
		if one.Newest() < last {
			if one.enforces, err = s.enforced(ctx, at, one.Newest(), last); err != nil {
				return nil, apierrors.NewInternalError(fmt.Errorf("reading what server %s enforces: %w", one.name, err))
			}
			maps.DeleteFunc(one.enforces, func(name string, _ int64) bool { return one.ignores(name) })
			for name, revision := range one.enforces {
				if _, ok := names[name]; !ok {
					names[name] = revision
				}
			}
		}
		servers = append(servers, one)
	}
	for i := range servers {
		for _, name := range servers[i].Static {
			if wanted == "" || wanted == name {
				names[name] = static
			}
		}
	}
	states := make([]v1alpha1.RegistrationState, 0, len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var one v1alpha1.RegistrationState
		if names[name] == static {
			one = staticState(name, servers)
		} else {
			one = state(name, stored[name], servers)
		}
		one.Problems = s.about.Problems(ctx, one.Registration.Resource, one.Registration.Name)
		one.Costs = s.about.Costs(one.Registration.Resource, one.Registration.Name)
		states = append(states, one)
	}
	return states, nil
}

// enforced returns the registrations that a server enforces that has not yet taken in the last
// write. newest is the latest revision that the server has taken in.
func (s *States) enforced(ctx context.Context, at func(int64) []clientv3.Op, newest, last int64) (versions, error) {
	if newest == 0 {
		// The server has read nothing and admits nothing.
		return versions{}, nil
	}
	response, err := s.etcd.Txn(ctx).Then(at(newest)...).Commit()
	if errors.Is(err, rpctypes.ErrCompacted) {
		// The server has taken in nothing for long, and the last write is recent.
		response, err = s.etcd.Txn(ctx).Then(at(last - 1)...).Commit()
	}
	if errors.Is(err, rpctypes.ErrCompacted) {
		return versions{}, nil
	}
	if err != nil {
		return nil, err
	}
	return s.versions(response, 0), nil
}

// versions reads the results of the operations from the given index on.
func (s *States) versions(response *clientv3.TxnResponse, from int) versions {
	found := versions{}
	for _, part := range response.Responses[from:] {
		for _, kv := range part.GetResponseRange().Kvs {
			for _, c := range s.collections {
				if name, ok := strings.CutPrefix(string(kv.Key), c.Prefix); ok {
					found[c.Resource+"."+name] = kv.ModRevision
				}
			}
		}
	}
	return found
}

// state makes the state of a registration. stored is the revision of the registration, 0 if it is
// not stored.
func state(name string, stored int64, servers []server) v1alpha1.RegistrationState {
	resource, object, _ := strings.Cut(name, ".")
	out := v1alpha1.RegistrationState{
		ObjectMeta:   metav1.ObjectMeta{Name: name},
		Registration: v1alpha1.Registration{Resource: resource, Name: object, ResourceVersion: text(stored)},
		InForce:      true,
		Replicas:     make([]v1alpha1.Replica, 0, len(servers)),
	}
	for _, one := range servers {
		enforced := stored
		switch {
		case one.ignores(name):
			enforced = 0
		case one.enforces != nil && (stored == 0 || one.Newest() < stored):
			enforced = one.enforces[name]
		}
		r := v1alpha1.Replica{
			Name: one.name, Address: one.Address, ResourceVersion: text(enforced),
			InForce: enforced == stored && one.Newest() > 0, Off: one.ignores(name),
		}
		if at := one.Since(enforced); enforced > 0 && at != nil {
			r.Since = &metav1.MicroTime{Time: *at}
		}
		for _, skipped := range one.Skipped {
			if skipped.Registration == name {
				r.Skipped = append(r.Skipped, v1alpha1.SkippedWebhook{
					Webhook: skipped.Webhook, Target: skipped.Target, Since: metav1.MicroTime{Time: skipped.Since}, Reason: skipped.Reason,
				})
			}
		}
		out.InForce = out.InForce && r.InForce
		out.Replicas = append(out.Replicas, r)
	}
	return out
}

// staticState makes the state of a registration of a manifest file. All servers should have
// the same files.
func staticState(name string, servers []server) v1alpha1.RegistrationState {
	resource, object, _ := strings.Cut(name, ".")
	out := v1alpha1.RegistrationState{
		ObjectMeta:   metav1.ObjectMeta{Name: name},
		Registration: v1alpha1.Registration{Resource: resource, Name: object, Source: "static"},
		InForce:      true,
		Replicas:     make([]v1alpha1.Replica, 0, len(servers)),
	}
	plugin := ""
	for _, d := range registration.Sources() {
		if d.Resource == resource {
			plugin = d.Plugin
		}
	}
	hash := ""
	for i := range servers {
		one := &servers[i]
		if !one.ReadsManifests {
			continue
		}
		if len(out.Replicas) == 0 {
			hash = one.Manifests[plugin]
		}
		r := v1alpha1.Replica{
			Name: one.name, Address: one.Address, ManifestsHash: one.Manifests[plugin],
			InForce: slices.Contains(one.Static, name), Off: one.ignores(name),
		}
		out.InForce = out.InForce && r.InForce && r.ManifestsHash == hash
		out.Replicas = append(out.Replicas, r)
	}
	return out
}

func text(revision int64) string {
	if revision == 0 {
		return ""
	}
	return strconv.FormatInt(revision, 10)
}

// ConvertToTable implements rest.TableConvertor.
func (s *States) ConvertToTable(_ context.Context, obj, _ runtime.Object) (*metav1.Table, error) {
	docs := v1alpha1.FieldDocs()
	return resources.Table(obj, []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: docs["RegistrationState"][""]},
		{Name: "Active", Type: "boolean", Description: docs["RegistrationState"]["inForce"]},
		{Name: "Replicas", Type: "string", Description: "How many servers enforce the stored version, out of all servers."},
		{Name: "Version", Type: "string", Description: docs["Registration"]["resourceVersion"]},
	}, func(s *v1alpha1.RegistrationState, _ string) []any {
		enforce := 0
		for _, r := range s.Replicas {
			if r.InForce {
				enforce++
			}
		}
		return []any{s.Name, s.InForce, fmt.Sprintf("%d/%d", enforce, len(s.Replicas)), s.Registration.ResourceVersion}
	})
}
