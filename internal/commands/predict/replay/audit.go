package replay

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/auditreport"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/requestlog"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/kit/credentials"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// maxFindings bounds the findings in an audit report.
const maxFindings = 50_000

// AuditOptions configure an audit.
type AuditOptions struct {
	Judging
	// Source provides the audited objects, Snapshot is their cluster, and Policies are the policies and webhooks to
	// evaluate; those in the cluster are then ignored. If Policies is nil, the objects are evaluated against the
	// policies of the cluster, without its webhooks.
	Source   Source
	Snapshot *clustersnapshot.Cluster
	Policies *manifests.Set
	// Gatehouse has the meaning of stage.Options.Gatehouse.
	Gatehouse bool
}

// Audit evaluates policies against objects. The error reports that the audit failed.
func Audit(ctx context.Context, o AuditOptions) (*auditreport.Report, error) {
	r := &auditreport.Report{APIVersion: requestlog.APIVersion, Kind: auditreport.Kind, KubernetesVersion: emulation.Behaves("v" + emulation.Release), VersionNote: o.VersionNote, Findings: []*auditreport.Finding{}}
	n, first := &needs{}, &requestlog.Count{}
	// A snapshot already contains the namespaces and accounts that its objects need.
	if o.Policies != nil {
		var err error
		n, first, err = needsOf(ctx, o.Source)
		if err != nil || first.Requests == 0 {
			if first != nil {
				r.Input = *first
			}
			return r, err
		}
	}
	// Only the policies being audited take part.
	without := &clustersnapshot.Cluster{}
	if o.Snapshot != nil {
		*without = *o.Snapshot
	}
	without.Items = slices.DeleteFunc(slices.Clone(without.Items), func(item map[string]any) bool {
		d := registered(&unstructured.Unstructured{Object: item})
		return d != nil && (o.Policies != nil || !d.Policies && !d.Binds)
	})
	if o.Policies == nil && !slices.ContainsFunc(without.Objects(), func(u *unstructured.Unstructured) bool { return registered(u) != nil }) {
		r.Input.Problems = []string{"the cluster has no policies"}
		return r, nil
	}
	c := &Cluster{Snapshot: without, Set: o.Policies, Gatehouse: o.Gatehouse}
	objects, files := c.objects()
	objects, _, _ = n.furnished(objects)
	w, notes, err := open(ctx, c, objects, files, o.ServiceAddresses)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	r.Notes = notes
	a := &auditing{Report: r, world: w, call: o.limiter(), places: map[string]*manifests.Object{}, webhooks: map[string]int{}}
	for _, f := range files {
		name, _ := f.Content["metadata"].(map[string]any)["name"].(string)
		a.places[name] = f
	}
	return r, a.evaluateAll(ctx, &o, first.Requests)
}

type auditing struct {
	*auditreport.Report
	world    *stage.Stage
	call     func(context.Context) error
	places   map[string]*manifests.Object
	webhooks map[string]int
}

// audited is the result for one object.
type audited struct {
	calls    []string
	findings []*auditreport.Finding
}

func (a *auditing) evaluateAll(ctx context.Context, o *AuditOptions, of int) error {
	count, err := judgedInOrder(ctx, o.Source, &o.Judging, of, a.evaluateObject, a.add)
	if err != nil {
		return err
	}
	a.Input = *count
	slices.SortStableFunc(a.Findings, func(x, y *auditreport.Finding) int {
		return cmp.Or(cmp.Compare(x.Policy, y.Policy), cmp.Compare(x.ObjectKind, y.ObjectKind), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	if a.call == nil {
		a.Webhooks = shares(a.webhooks)
	}
	return nil
}

func (a *auditing) add(_ *requestlog.Entry, j *audited) {
	a.Judged++
	if len(j.findings) == 0 {
		a.Passed++
	}
	for _, f := range j.findings {
		if len(a.Findings) >= maxFindings {
			a.More++
			continue
		}
		a.Findings = append(a.Findings, f)
	}
	for _, name := range j.calls {
		a.webhooks[name]++
	}
}

// changesObject precedes the patch in the message of a change.
const changesObject = " changes the object: "

// evaluateObject evaluates one object, and reads the result of each policy from the trace.
func (a *auditing) evaluateObject(ctx context.Context, q *requestlog.Entry) (*audited, error) {
	p, err := prepare(q)
	if err != nil {
		return nil, err
	}
	v, err := (&judge{world: a.world, call: a.call}).of(ctx, p)
	if err != nil {
		return nil, err
	}
	j := &audited{calls: v.calls}
	u := decoded(q.Object)
	about := func(f auditreport.Finding) *auditreport.Finding {
		f.APIVersion, f.ObjectKind, f.Namespace, f.Name, f.UID = u.GetAPIVersion(), u.GetKind(), u.GetNamespace(), u.GetName(), string(u.GetUID())
		name, _, _ := strings.Cut(f.Policy, "/")
		if o := a.places[name]; o != nil {
			f.File, f.Line = o.File, o.Line
		}
		if what, patch, ok := strings.Cut(f.Message, changesObject); ok && f.Result == auditreport.ChangesIt {
			f.Message = what + changesObject + string(credentials.Patch([]byte(patch)))
		}
		f.Message = cutAll([]string{f.Message}, quotingOf(q))[0]
		return &f
	}
	ours := false
	for act := range v.trace.Verdicts(false).Acts() {
		result, ok := results[act.Deed]
		if !ok || act.Entry == nil {
			continue
		}
		f := auditreport.Finding{Policy: act.By, Webhook: act.Kind == trace.ByWebhook, Binding: act.Binding, Validation: act.Index, Result: result, Message: act.Message}
		if result == auditreport.ChangesIt {
			patch, _ := json.Marshal(act.Patch)
			f.Message = "the " + act.Kind + changesObject + string(patch)
		}
		ours = ours || result == auditreport.Fails
		if !slices.ContainsFunc(j.findings, func(o *auditreport.Finding) bool {
			return o.Policy == f.Policy && o.Result == f.Result && o.Message == f.Message && o.Binding == f.Binding
		}) {
			j.findings = append(j.findings, about(f))
		}
	}
	if !v.allowed && !ours {
		return nil, unjudged("another part of the API server rejects the object: " + strings.Join(names(v.by), ", "))
	}
	return j, nil
}

// results maps the deeds of policies and webhooks to results.
var results = map[trace.Deed]auditreport.Result{
	trace.Rejects: auditreport.Fails, trace.WouldReject: auditreport.Warns, trace.Notes: auditreport.Warns, trace.FailsOpen: auditreport.Errs, trace.Changes: auditreport.ChangesIt,
}
