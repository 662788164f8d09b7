package customresources

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// shown reports whether discovery shows a group version.
func (e *env) shown(gv schema.GroupVersion) bool {
	for _, v := range e.Versions() {
		if v.GroupVersion == gv {
			return true
		}
	}
	return false
}

// A client that creates a CRD and awaits its arrival finds it in discovery.
func TestArrivalsAreAwaited(t *testing.T) {
	e := newEnv(t)
	e.arrivals.patience = time.Hour
	e.create(widgets)
	if Await(e.ctx, e.Arriving("example.com")); !e.shown(schema.GroupVersion{Group: "example.com", Version: "v1"}) {
		t.Error("the definition is not in discovery")
	}
	if len(e.Arriving("")) > 0 {
		t.Error("the definition still arrives")
	}
}

// No client waits for a CRD that will not be served soon, or for a CRD of another group.
func TestWhatIsNotAwaited(t *testing.T) {
	for name, c := range map[string]struct {
		option func(*Options)
		create func(e *env)
	}{
		"a definition with names that are taken": {create: func(e *env) {
			e.define(widgets)
			e.create(strings.NewReplacer("plural: widgets", "plural: gadgets", "name: widgets.", "name: gadgets.", "singular: widget", "singular: gadget").Replace(widgets))
		}},
		"a delayed definition": {
			option: func(o *Options) { o.EstablishDelay = func(context.Context) time.Duration { return time.Hour } },
			create: func(e *env) { e.create(widgets) },
		},
		"a definition that is there already": {create: func(e *env) {
			e.define(widgets)
			e.must(409, "POST", definitionsPath, widgets, "Content-Type", "application/yaml")
		}},
		"a definition that cannot be established": {create: func(e *env) {
			e.create(widgets + "  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: 'https://127.0.0.1/', caBundle: aGVsbG8=}}}\n")
		}},
		"a definition that is deleted": {create: func(e *env) {
			crd := e.define(widgets)
			e.arrivals.add(crd.Name, crd.Spec.Group)(crd.UID)
			e.must(200, "DELETE", definitionsPath+"/widgets.example.com", "")
		}},
		"a dry run": {create: func(e *env) {
			e.must(201, "POST", definitionsPath+"?dryRun=All", widgets, "Content-Type", "application/yaml")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var options []func(*Options)
			if c.option != nil {
				options = append(options, c.option)
			}
			e := newEnv(t, options...)
			e.arrivals.patience = time.Hour
			c.create(e)
			Await(e.ctx, e.Arriving("example.com"))
			if err := e.ctx.Err(); err != nil {
				t.Error(err)
			}
		})
	}
	a := newArrivals(time.Hour)
	defer a.add("widgets.example.com", "example.com")("")
	if len(a.of("other.example.com")) != 0 || len(a.of("example.com")) != 1 || len(a.of("")) != 1 {
		t.Error("arrivals of one group count as those of another")
	}
}

// An arrival ends by itself.
func TestPatience(t *testing.T) {
	a := newArrivals(time.Millisecond)
	created := a.add("widgets.example.com", "example.com")
	Await(t.Context(), a.of(""))
	created("")
	a.arrived("widgets.example.com")
}

// A client that has created a CRD and awaits its resource can use it at once.
func TestResourcesAreAwaited(t *testing.T) {
	for name, option := range map[string]func(*Options){
		"at once": func(*Options) {},
		"established later": func(o *Options) {
			o.EstablishDelay = func(context.Context) time.Duration { return time.Hour }
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, option)
			e.arrivals.patience = time.Hour
			e.create(widgets)
			resource := schema.GroupResource{Group: "example.com", Resource: "widgets"}
			Await(e.ctx, e.ArrivingResource(resource))
			e.must(201, "POST", widgetsPath, widget("one", "{size: 1}"))
			if len(e.ArrivingResource(resource)) > 0 {
				t.Error("the resource still arrives")
			}
		})
	}
}

// No client waits for a resource that will not be served soon.
func TestResourcesThatAreNotAwaited(t *testing.T) {
	e := newEnv(t)
	e.arrivals.patience = time.Hour
	e.define(widgets)
	e.create(strings.NewReplacer("plural: widgets", "plural: gadgets", "name: widgets.", "name: gadgets.", "singular: widget", "singular: gadget").Replace(widgets))
	Await(e.ctx, e.ArrivingResource(schema.GroupResource{Group: "example.com", Resource: "gadgets"}))
	Await(e.ctx, e.ArrivingResource(schema.GroupResource{Group: "example.com", Resource: "nothing"}))
	if err := e.ctx.Err(); err != nil {
		t.Error(err)
	}
}
