package check

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/internal/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/report"
)

// expand tries to create the objects that controllers create for the accepted workloads, each as
// the user of its controller. Nothing is stored, so expand does not notice that the replicas of a
// workload use up a quota.
func (r *run) expand(ctx context.Context) error {
	controllers := &controllerClients{run: r, made: map[string]*client{}}
	rejected := make([][]func(), len(r.tasks))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, t := range r.tasks {
		if !t.accepted() {
			r.did(expanding, 1)
			continue
		}
		group.Go(func() (err error) {
			defer r.did(expanding, 1)
			rejected[i], err = r.dependents(ctx, controllers, t)
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

// dependents tries to create the objects that controllers create for a workload. It returns
// functions that report the rejections.
func (r *run) dependents(ctx context.Context, controllers *controllerClients, t *task) (findings []func(), err error) {
	stored := &unstructured.Unstructured{}
	if json.Unmarshal(t.answer.body, &stored.Object) != nil || stored.GroupVersionKind() != t.kind.Kind {
		// The answer is that to a patch or a review.
		return nil, nil
	}
	made, err := offline.Dependents(stored)
	if err != nil {
		return nil, fmt.Errorf("what controllers create for %s: %w", t.result.Title(), err)
	}
	for i := range made {
		d := &made[i]
		c, err := controllers.of(d)
		if err != nil {
			return nil, err
		}
		q := request{method: http.MethodPost, path: collection(r.kinds.Of(d.Object.GroupVersionKind()), t.namespace), contentType: jsonType, body: bodyOf(d.Object.Object)}
		q.query = map[string][]string{"dryRun": {metav1.DryRunAll}}
		a, err := c.do(ctx, q)
		if err != nil {
			return nil, err
		}
		if !a.ok() {
			causes, err := r.denials(ctx, a)
			if err != nil {
				return nil, err
			}
			if len(causes) == 0 {
				causes = []denial{{message: a.status.Message}}
			}
			for i := range causes {
				cause := &causes[i]
				field := strings.Join(d.Template, ".")
				message := fmt.Sprintf("the %s that the controller of %s creates would be rejected: %s", d.Object.GetKind(), d.Of, cause.message)
				findings = append(findings, func() {
					r.report.findCause(t, report.Error, cause.Rule(ruleDependent), field, message, cause.Cause)
				})
			}
		}
	}
	return findings, nil
}

// controllerClients are the clients of controllers, by name.
type controllerClients struct {
	run *run

	mu   sync.Mutex
	made map[string]*client
}

// of returns the client of the controller that creates an object.
func (c *controllerClients) of(d *offline.Dependent) (*client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := d.By.GetName()
	if c.made[name] == nil {
		made, err := newClient(c.run.server.admin, name, d.By.GetGroups())
		if err != nil {
			return nil, err
		}
		c.made[name] = made
	}
	return c.made[name], nil
}
