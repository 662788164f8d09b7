package replicas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/admission/announce"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas/v1alpha1"
)

// Servers is the plural under which AdmissionServers are served.
const Servers = "admissionservers"

// maxLifetime bounds how long an announcement lasts, in seconds. If a server ends without
// withdrawing its announcement, registrations do not become active until the announcement expires.
const maxLifetime = 300

// AdmissionServers is a storage of the announcements of servers. Gatehouse servers write theirs to
// etcd. Other servers that enforce the registrations here, such as aggregated servers, write theirs
// through this storage (S22.20). It is safe for concurrent use.
type AdmissionServers struct {
	resources.Computed
	etcd   *clientv3.Client
	prefix string
}

// NewAdmissionServers returns the storage of the announcements below prefix.
func NewAdmissionServers(etcd *clientv3.Client, prefix string) *AdmissionServers {
	return &AdmissionServers{etcd: etcd, prefix: prefix, Computed: resources.Computed{
		Object:   func() runtime.Object { return &v1alpha1.AdmissionServer{} },
		List:     func() runtime.Object { return &v1alpha1.AdmissionServerList{} },
		Singular: "admissionserver",
	}}
}

var (
	_ rest.Getter          = (*AdmissionServers)(nil)
	_ rest.Lister          = (*AdmissionServers)(nil)
	_ rest.Updater         = (*AdmissionServers)(nil)
	_ rest.GracefulDeleter = (*AdmissionServers)(nil)
)

// Get implements rest.Getter.
func (s *AdmissionServers) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	found, _, err := s.get(ctx, name)
	if err != nil {
		return nil, err
	}
	return found, nil
}

func (s *AdmissionServers) get(ctx context.Context, name string) (*v1alpha1.AdmissionServer, clientv3.LeaseID, error) {
	got, err := s.etcd.Get(ctx, path.Join(s.prefix, name))
	if err != nil {
		return nil, 0, apierrors.NewInternalError(fmt.Errorf("reading what server %s announces: %w", name, err))
	}
	if len(got.Kvs) == 0 {
		return nil, 0, apierrors.NewNotFound(v1alpha1.SchemeGroupVersion.WithResource(Servers).GroupResource(), name)
	}
	server, err := decodeServer(name, got.Kvs[0].Value)
	return server, clientv3.LeaseID(got.Kvs[0].Lease), err
}

func decodeServer(name string, value []byte) (*v1alpha1.AdmissionServer, error) {
	server := &v1alpha1.AdmissionServer{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := json.Unmarshal(value, &server.Announcement); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("reading what server %s announces: %w", name, err))
	}
	return server, nil
}

// List implements rest.Lister.
func (s *AdmissionServers) List(ctx context.Context, _ *metainternalversion.ListOptions) (runtime.Object, error) {
	got, err := s.etcd.Get(ctx, s.prefix+"/", clientv3.WithPrefix())
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("reading what servers announce: %w", err))
	}
	list := &v1alpha1.AdmissionServerList{Items: []v1alpha1.AdmissionServer{}}
	for _, kv := range got.Kvs {
		server, err := decodeServer(path.Base(string(kv.Key)), kv.Value)
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, *server)
	}
	return list, nil
}

// Addresses returns the addresses that servers announce, without those equal to except.
func (s *AdmissionServers) Addresses(ctx context.Context, except string) ([]string, error) {
	list, err := s.List(ctx, nil)
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, server := range list.(*v1alpha1.AdmissionServerList).Items {
		if server.Address != except && !slices.Contains(addresses, server.Address) {
			addresses = append(addresses, server.Address)
		}
	}
	return addresses, nil
}

// Update implements rest.Updater. It creates an object that does not exist: a server makes and
// renews its announcement in the same way.
func (s *AdmissionServers) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc, _ bool, o *metav1.UpdateOptions) (runtime.Object, bool, error) {
	old, lease, err := s.get(ctx, name)
	created := apierrors.IsNotFound(err)
	if err != nil && !created {
		return nil, false, err
	}
	if created {
		old = &v1alpha1.AdmissionServer{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	obj, err := info.UpdatedObject(ctx, old)
	if err != nil {
		return nil, false, err
	}
	server, ok := obj.(*v1alpha1.AdmissionServer)
	if !ok {
		return nil, false, apierrors.NewInternalError(fmt.Errorf("%T is not an AdmissionServer", obj))
	}
	if errs := validateServer(server); len(errs) > 0 {
		return nil, false, apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind("AdmissionServer").GroupKind(), name, errs)
	}
	if created && createValidation != nil {
		err = createValidation(ctx, server)
	} else if !created && updateValidation != nil {
		err = updateValidation(ctx, server, old)
	}
	if err != nil {
		return nil, false, err
	}
	if len(o.DryRun) > 0 {
		return server, created, nil
	}
	if err := s.put(ctx, name, server, lease); err != nil {
		return nil, false, apierrors.NewInternalError(fmt.Errorf("writing what server %s announces: %w", name, err))
	}
	return &v1alpha1.AdmissionServer{ObjectMeta: metav1.ObjectMeta{Name: name}, LifetimeSeconds: server.LifetimeSeconds, Announcement: server.Announcement}, created, nil
}

// put writes an announcement, on its lease if there is one.
func (s *AdmissionServers) put(ctx context.Context, name string, server *v1alpha1.AdmissionServer, lease clientv3.LeaseID) error {
	value, err := json.Marshal(server.Announcement)
	if err != nil {
		return err
	}
	if lease != 0 {
		_, err := s.etcd.KeepAliveOnce(ctx, lease)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			lease = 0
		} else if err != nil {
			return err
		}
	}
	if lease == 0 {
		granted, err := s.etcd.Grant(ctx, server.LifetimeSeconds)
		if err != nil {
			return err
		}
		lease = granted.ID
	}
	_, err = s.etcd.Put(ctx, path.Join(s.prefix, name), string(value), clientv3.WithLease(lease))
	return err
}

func validateServer(s *v1alpha1.AdmissionServer) field.ErrorList {
	var errs field.ErrorList
	if s.Address == "" {
		errs = append(errs, field.Required(field.NewPath("address"), "it says where clients reach the server"))
	}
	if s.LifetimeSeconds < 1 || s.LifetimeSeconds > maxLifetime {
		errs = append(errs, field.Invalid(field.NewPath("lifetimeSeconds"), s.LifetimeSeconds, fmt.Sprintf("must be between 1 and %d", maxLifetime)))
	}
	if n := len(s.Adopted); n > announce.Remembered {
		errs = append(errs, field.TooMany(field.NewPath("adopted"), n, announce.Remembered))
	}
	if n := len(s.Skipped); n > announce.MaxSkipped {
		errs = append(errs, field.TooMany(field.NewPath("skipped"), n, announce.MaxSkipped))
	}
	return errs
}

// Delete implements rest.GracefulDeleter.
func (s *AdmissionServers) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, o *metav1.DeleteOptions) (runtime.Object, bool, error) {
	server, lease, err := s.get(ctx, name)
	if err != nil {
		return nil, false, err
	}
	if validate != nil {
		if err := validate(ctx, server); err != nil {
			return nil, false, err
		}
	}
	if o != nil && len(o.DryRun) > 0 {
		return server, true, nil
	}
	if lease != 0 {
		_, err = s.etcd.Revoke(ctx, lease)
	} else {
		_, err = s.etcd.Delete(ctx, path.Join(s.prefix, name))
	}
	if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil, false, apierrors.NewInternalError(fmt.Errorf("deleting what server %s announces: %w", name, err))
	}
	return server, true, nil
}

// ConvertToTable implements rest.TableConvertor.
func (s *AdmissionServers) ConvertToTable(_ context.Context, obj, _ runtime.Object) (*metav1.Table, error) {
	return resources.Table(obj, []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: v1alpha1.FieldDocs()["AdmissionServer"][""]},
		{Name: "Address", Type: "string", Description: announce.FieldDocs()["Announcement"]["address"]},
		{Name: "Revision", Type: "integer", Description: "The revision up to which the server enforces registrations."},
	}, func(s *v1alpha1.AdmissionServer, _ string) []any { return []any{s.Name, s.Address, s.Newest()} })
}
