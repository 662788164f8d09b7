package check

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/report"
)

// Options say which objects are checked, and how.
type Options struct {
	// Set are the objects.
	Set *manifests.Set
	// Old is the version before of the files, nil for none. Its objects exist before the check,
	// so that those of Set are updates. Objects that Set does not have any more are deleted.
	Old *manifests.Set
	// Snapshot is the cluster that the objects are meant for; nil for an empty one.
	Snapshot *clustersnapshot.Cluster
	// Namespace is the namespace of objects that name none; empty means default. With
	// NamespaceEnforced, objects that name another namespace are refused, as by kubectl -n.
	Namespace         string
	NamespaceEnforced bool
	// As is the user that applies the objects, with Groups; empty for an administrator.
	As     string
	Groups []string
	// ServerSide applies as kubectl apply --server-side does.
	ServerSide bool
	// Gatehouse judges as a Gatehouse server, and otherwise as a kube-apiserver, which ignores the
	// annotations of Gatehouse (S28.11).
	Gatehouse bool
	// Call calls the webhooks. ServiceAddresses have the addresses of webhooks that name a
	// service, each as NAMESPACE/NAME[:PORT]=HOST:PORT.
	Call             bool
	ServiceAddresses []string
	// AllowUnseen are the resources of the cluster that need not be read, or EverythingUnseen.
	// Another resource that was not read is an error if it could change the verdict on an object.
	AllowUnseen []string
	// Skip are kinds whose objects are not judged, as KIND or GROUP/KIND. The server makes them
	// all the same, since other objects may need them.
	Skip []string
	// MissingDefinitions says what happens to objects of a kind without a definition; empty means
	// MissingIsError.
	MissingDefinitions MissingDefinitions
	// Accepted are findings that do not count, as AcceptedBy says, which names a file.
	Accepted   []report.Acceptance
	AcceptedBy string
	// Expand also checks what controllers create for workloads, such as pods.
	Expand bool
	// VersionNote says that objects are judged as by another release than that of the cluster;
	// empty when they are not.
	VersionNote string
	// Fields are the fields in which the types of the cluster's release differ from those of the
	// server; nil when none do.
	Fields *emulation.Fields
	// ServiceRange is where the cluster IPs of services come from; empty for that of the snapshot, and
	// any that services ask for when that is not known, either.
	ServiceRange string
	// Diff asks what the server made of each object.
	Diff bool
	// Progress, if it is set, is called with the part of the check, how many objects are done,
	// and of how many. Only one goroutine at a time calls it.
	Progress func(what string, done, of int)
}

// MissingDefinitions says what happens to objects of a kind that is neither built in nor defined.
type MissingDefinitions string

// The values of MissingDefinitions.
const (
	MissingIsError   MissingDefinitions = "error"
	MissingIsWarning MissingDefinitions = "warn"
	MissingIsSkipped MissingDefinitions = "skip"
)

// Run checks the objects. The error says that they could not be checked; the faults of the
// objects are in the Report.
func Run(ctx context.Context, o Options) (*Report, error) {
	begin := time.Now()
	found := newReport(&o)
	settings := stage.Options{Snapshot: o.Snapshot, Gatehouse: o.Gatehouse, Webhooks: o.Call, ServiceAddresses: o.ServiceAddresses, ServiceRange: o.ServiceRange, Fields: o.Fields}
	if o.Call {
		settings.MayConvert = stage.ConvertingAll
	}
	s, err := stage.Open(ctx, settings)
	if err != nil {
		return nil, fmt.Errorf("starting a server to check with: %w", err)
	}
	defer s.Close()
	found.Summary.StartSeconds = time.Since(begin).Seconds()
	begin = time.Now()
	r := &run{Options: o, stage: s, report: found}
	if err := r.all(ctx); err != nil {
		return nil, err
	}
	r.countUnseen()
	found.sort()
	r.accept()
	found.sort()
	found.count()
	found.Summary.CheckSeconds = time.Since(begin).Seconds()
	return found, nil
}
