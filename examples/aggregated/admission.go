package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/announce"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	galleryv1 "github.com/gatehouse-dev/gatehouse/examples/aggregated/gallery/v1"
	"github.com/gatehouse-dev/gatehouse/initialization"
)

// judge is the server's admission. It uses the webhooks, policies, initializers and namespaces of the main
// server.
type judge struct {
	engine    *admission.Engine
	refresher *snapshot.Refresher
	announcer *announce.Announcer
	chain     apiadmission.Interface
	// reports has the traces and plans of the server's requests.
	reports *admission.Reports
	// watched has the namespaces of the main server.
	watched informers.SharedInformerFactory
	// initialization hides uninitialized objects and makes their creators wait.
	initialization *initialization.Decorator
}

// judgeParts are the dependencies of a judge.
type judgeParts struct {
	// main is a client of the main server, and watched has objects of it.
	main    kubernetes.Interface
	watched informers.SharedInformerFactory
	// params reads the params of policies from the main server. schemas has the schemas of this server's kinds.
	params    admission.Params
	schemas   admission.Schemas
	authorize authorizer.Authorizer
	// name identifies this run of the server, and address is its URL.
	name, address string
	// strict makes admission use the webhooks and policies that are registered when a request arrives.
	strict bool
}

// newJudge builds the chain. The caller must run it, and close the engine at the end.
func newJudge(p judgeParts) (*judge, error) {
	j := &judge{watched: p.watched}
	client := p.main.Discovery().RESTClient()
	j.announcer = announce.New(announce.Options{Main: client, Name: p.name, Address: p.address, Reports: galleryv1.SchemeGroupVersion.String()})
	var err error
	j.refresher, err = snapshot.NewRefresher(snapshot.Options{
		Reader: j.announcer.Reader(snapshot.NewClientReader(client)),
		Strict: p.strict,
		Observer: func(r snapshot.Read) {
			admission.CountRead(r)
			j.announcer.Observe(r)
			if r.Snapshot != nil {
				j.announcer.Skip(j.engine.Skipped(r.Snapshot))
			}
		},
	})
	if err != nil {
		return nil, err
	}
	namespaces := admission.ClusterNamespaces{Lister: p.watched.Core().V1().Namespaces().Lister(), Client: p.main}
	j.engine, err = admission.New(admission.Options{
		Snapshots: j.refresher, Namespaces: namespaces, Authorizer: p.authorize, Params: p.params, Schemas: p.schemas,
	})
	if err != nil {
		return nil, err
	}
	mustAct, parallel := initialization.Registered(j.refresher.Current)
	j.initialization = initialization.New(initialization.Options{MustAct: mustAct, Parallel: parallel, Observe: initialization.Count})
	names, err := admission.Selection{}.Names(admission.Recommended())
	if err != nil {
		return nil, err
	}
	plugins, err := j.engine.Plugins(names, nil)
	if err != nil {
		return nil, err
	}
	j.reports, err = admission.NewReports(admission.ReportsOptions{
		GroupVersion: galleryv1.SchemeGroupVersion, Engine: j.engine, Plugins: plugins, Authorizer: p.authorize,
	})
	if err != nil {
		return nil, err
	}
	j.chain = j.reports.Admission()
	return j, nil
}

// initialize makes the server treat uninitialized paintings like the main server's own uninitialized objects.
// The reports keep the traces of requests and serve `gatehouse trace` and `gatehouse explain`.
func (j *judge) initialize(config *genericapiserver.Config) {
	config.RESTOptionsGetter = j.initialization.RESTOptions(config.RESTOptionsGetter)
	config.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		api = j.initialization.Handler(api, c.Authorization.Authorizer, c.MaxMutatingRequestsInFlight/2)
		return genericapiserver.DefaultBuildHandlerChain(j.reports.Handler(api), c)
	}
}

// run keeps the judge up to date until ctx ends. The announcer announces this server to the main server, and
// retries until it succeeds. Until then, the refresher does not read webhooks and policies.
func (j *judge) run(ctx context.Context) error {
	announced := make(chan struct{})
	go func() {
		defer close(announced)
		j.announcer.Run(ctx)
	}()
	defer func() { <-announced }()
	return j.refresher.Run(ctx)
}

// awaitReady waits until requests can be admitted, or ctx ends.
func (j *judge) awaitReady(ctx context.Context) error {
	j.watched.WaitForCacheSync(ctx.Done())
	return j.refresher.Await(ctx, func(*snapshot.Snapshot) bool { return true })
}

var errNotRead = errors.New("the registrations of the main server have not been read")

// ready fails the readiness check until the server is announced to the main server and has read the webhooks
// and policies once.
func (j *judge) ready() healthz.HealthChecker {
	return healthz.NamedCheck("registrations", func(*http.Request) error {
		if err := j.announcer.Covers(time.Now()); err != nil {
			return err
		}
		if j.refresher.Current() == nil {
			return errNotRead
		}
		return nil
	})
}
