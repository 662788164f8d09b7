package lint

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// idle is how long an initializer may leave an object waiting.
const idle = time.Hour

var initializerIdle = &Rule{
	ID: "initializer-idle", Level: Warning,
	Reads: []Part{Waiting},
	Title: "No controller has acted on an initializer for an hour",
	Why: "Objects wait for a name in metadata.initializers.pending that no controller removes. Nobody else sees these objects, and with failurePolicy Fail " +
		"every new object is lost in the same way.",
	Fix: "Start the controller of that initializer, or delete its configuration and finish the objects: gatehouse initializers list, gatehouse initializers skip.",
	Fails: initializers("", "") + `---
apiVersion: v1
kind: Pod
metadata:
  namespace: shop
  name: web
  creationTimestamp: "2026-10-31T22:00:00Z"
  initializers: {pending: [{name: first.example.com}]}
spec: {containers: [{name: web, image: registry.example.com/web}]}
`,
	Passes: initializers("", "") + `---
apiVersion: v1
kind: Pod
metadata:
  namespace: shop
  name: web
  creationTimestamp: "2026-10-31T23:59:50Z"
  initializers: {pending: [{name: first.example.com}]}
spec: {containers: [{name: web, image: registry.example.com/web}]}
`,
	check: func(p *pass) {
		waiting := map[string][]string{}
		oldest := map[string]time.Duration{}
		for _, w := range p.Waiting {
			if age := p.Now.Sub(w.Since); age > idle {
				waiting[w.Initializer] = append(waiting[w.Initializer], w.Object.String())
				oldest[w.Initializer] = max(oldest[w.Initializer], age)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(waiting)) {
			where := place{object: Object{Kind: "initializer", Name: name}}
			registered := "which is not registered any more"
			if e := p.Snapshot.Initializer(name); e != nil {
				where, registered = at(e.Entry), fmt.Sprintf("which is registered with failurePolicy %s", e.FailurePolicy)
			}
			p.finds(where, "%s waits for %s, %s, for %v", few(waiting[name]), name, registered, oldest[name].Round(time.Minute))
		}
	},
}
