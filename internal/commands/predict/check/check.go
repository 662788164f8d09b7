package check

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/crdschema"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// Options configure a check.
type Options struct {
	// Set contains the objects to check.
	Set *manifests.Set
	// Old is the previous version of the files, nil for none. Its objects exist before the check, so that objects of
	// Set are updates. Objects that are missing from Set are deleted.
	Old *manifests.Set
	// Snapshot is the target cluster; nil for an empty cluster.
	Snapshot *clustersnapshot.Cluster
	// Namespace is the namespace of objects that name none; empty means default. With NamespaceEnforced, objects that
	// name another namespace are rejected, as by kubectl -n.
	Namespace         string
	NamespaceEnforced bool
	// As is the user who applies the objects, with Groups; empty for an administrator.
	As     string
	Groups []string
	// ServerSide applies as kubectl apply --server-side does.
	ServerSide bool
	// Gatehouse makes the check behave as a Gatehouse server, and otherwise as a kube-apiserver, which ignores
	// Gatehouse's annotations (S28.11).
	Gatehouse bool
	// Call enables calls of webhooks. ServiceAddresses are the addresses of webhooks that name a service, each as
	// NAMESPACE/NAME[:PORT]=HOST:PORT.
	Call             bool
	ServiceAddresses []string
	// AdmissionConfigFile is the AdmissionConfiguration of the server; empty for none.
	AdmissionConfigFile string
	// AllowUnseen lists resources of the cluster that may be unread, or EverythingUnseen. Any other unread resource is
	// an error if it could change the verdict on an object.
	AllowUnseen []string
	// Skip lists kinds whose objects are not checked, as KIND or GROUP/KIND. They are created anyway, because other
	// objects may need them.
	Skip []string
	// MissingDefinitions configures the treatment of objects whose kind is not known; empty means MissingIsError.
	MissingDefinitions MissingDefinitions
	// Accepted lists findings that do not count. AcceptedBy is the file that lists them.
	Accepted   []report.Acceptance
	AcceptedBy string
	// Expand also checks the objects that controllers create for workloads, such as pods.
	Expand bool
	// VersionNote is a sentence if objects are checked as by another release than the cluster's; empty otherwise.
	VersionNote string
	// Fields are the fields in which the types of the cluster's release differ from the types of the server; nil if
	// none do.
	Fields *emulation.Fields
	// ServiceRange is the range of the cluster IPs of services. If empty, the range of the snapshot applies; if that is
	// unknown, too, any cluster IP is allowed.
	ServiceRange string
	// Definitions finds CRDs that are neither in Set nor in Snapshot; nil for none.
	Definitions *crdschema.Locations
	// Diff adds the server's changes to each object to the report.
	Diff bool
	// Progress, if set, is called with the part of the check, the number of objects done, and their total. It is never
	// called concurrently.
	Progress func(what string, done, of int)
}

// MissingDefinitions configures the treatment of objects whose kind is neither built in nor defined by a CRD.
type MissingDefinitions string

// The values of MissingDefinitions.
const (
	MissingIsError   MissingDefinitions = "error"
	MissingIsWarning MissingDefinitions = "warn"
	MissingIsSkipped MissingDefinitions = "skip"
)

// Run checks the objects. The error reports that they could not be checked; problems of the objects are in the Report.
func Run(ctx context.Context, o Options) (*Report, error) {
	begin := time.Now()
	found := newReport(&o)
	settings := stage.Options{Snapshot: o.Snapshot, Gatehouse: o.Gatehouse, Webhooks: o.Call, ServiceAddresses: o.ServiceAddresses, ServiceRange: o.ServiceRange, Fields: o.Fields, AdmissionConfigFile: o.AdmissionConfigFile}
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
	if err := r.runAll(ctx); err != nil {
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
