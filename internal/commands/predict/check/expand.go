package check

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/sync/errgroup"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/dependents"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/order"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// expand tries to create the objects that controllers create for the accepted workloads, each as the user of its
// controller. Nothing is stored, so expand does not notice if the replicas of a workload use up a quota.
func (r *run) expand(ctx context.Context) error {
	if !r.Expand {
		return nil
	}
	rejected := make([][]func(), len(r.tasks))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(order.Parallel)
	for i, t := range r.tasks {
		if !t.accepted() {
			r.did(expanding, 1)
			continue
		}
		group.Go(func() (err error) {
			defer r.did(expanding, 1)
			rejected[i], err = r.dependents(ctx, t)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, findings := range rejected {
		for _, find := range findings {
			find()
		}
	}
	return nil
}

// dependents tries to create the objects that controllers create for a workload. It returns functions that report the
// rejections.
func (r *run) dependents(ctx context.Context, t *task) (findings []func(), err error) {
	// The response to a patch or a review has another kind.
	made, err := dependents.OfEncoded(t.kind.Kind, t.answer.Body)
	if err != nil {
		return nil, fmt.Errorf("what controllers create for %s: %w", t.result.Title(), err)
	}
	for i := range made {
		d := &made[i]
		kind, controller := r.stage.Kinds().Of(d.Object.GetObjectKind().GroupVersionKind()), r.stage.Client(d.By.GetName(), d.By.GetGroups())
		query := map[string][]string{"dryRun": {metav1.DryRunAll}}
		if !r.Call && !r.seesManagers && !r.predicting {
			if a, err := controller.Judge(ctx, &stage.Question{Kind: kind, Namespace: t.namespace, Query: query, Object: d.Object}); err == nil && a.OK() {
				continue
			}
		}
		sent, err := d.Unstructured()
		if err != nil {
			return nil, err
		}
		a, err := controller.Do(ctx, stage.HTTPRequest{Method: http.MethodPost, Path: stage.Collection(kind, t.namespace), Query: query, ContentType: stage.JSON, Body: stage.Encode(sent.Object)})
		if err != nil {
			return nil, err
		}
		if a.OK() && r.predicting {
			admitted := dependent{*d}
			if u := (&unstructured.Unstructured{}); u.UnmarshalJSON(a.Body) == nil {
				u.SetResourceVersion("")
				admitted.Object = u
			}
			t.dependents = append(t.dependents, admitted)
		}
		if !a.OK() {
			causes := r.read(a).denials
			if len(causes) == 0 {
				causes = []denial{{message: a.Status.Message}}
			}
			for i := range causes {
				cause := &causes[i]
				field := strings.Join(d.Template, ".")
				message := (&dependent{*d}).rejected(cause.message)
				findings = append(findings, func() {
					r.report.addFindingWithCause(t, report.Error, cause.Description(ruleDependent), field, message, cause.Cause)
				})
			}
		}
	}
	return findings, nil
}

// dependent is an object that a controller creates for a workload, as admission changed it.
type dependent struct{ dependents.Dependent }

// rejected returns the message of a finding for the reason of its rejection.
func (d *dependent) rejected(why string) string {
	return fmt.Sprintf("the %s that the controller of %s creates would be rejected: %s", d.Object.GetObjectKind().GroupVersionKind().Kind, d.Of, why)
}
