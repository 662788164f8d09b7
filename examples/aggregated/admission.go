package main

import (
	"context"
	"errors"
	"net/http"

	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/announce"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/initialization"
)

// judge is the server's admission. Its registrations and its namespaces are those of the
// main server.
type judge struct {
	engine    *admission.Engine
	refresher *snapshot.Refresher
	announcer *announce.Announcer
	chain     apiadmission.Interface
	// initialization hides objects that are not initialized, and has creators wait.
	initialization *initialization.Decorator
}

// judgeParts are what a judge is made of.
type judgeParts struct {
	// main is the main server, and watched are objects of it.
	main    kubernetes.Interface
	watched informers.SharedInformerFactory
	// params reads what policies refer to on the main server; schemas are those of the kinds
	// here.
	params    admission.Params
	schemas   admission.Schemas
	authorize authorizer.UnconditionalAuthorizer
	// name is that of this run of the server, address its URL.
	name, address string
	// strict has every request judged by what is registered when it arrives.
	strict bool
}

// newJudge builds the chain. The caller runs it, and closes the engine at the end.
func newJudge(p judgeParts) (*judge, error) {
	j := &judge{}
	client := p.main.Discovery().RESTClient()
	j.announcer = announce.New(announce.Options{Main: client, Name: p.name, Address: p.address})
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
	j.chain = admission.Chain(plugins...)
	return j, nil
}

// initialize has the server do with paintings that are not initialized what the main server
// does with its own objects.
func (j *judge) initialize(config *genericapiserver.Config) {
	config.RESTOptionsGetter = j.initialization.RESTOptions(config.RESTOptionsGetter)
	config.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		api = j.initialization.Handler(api, c.Authorization.Authorizer, c.MaxMutatingRequestsInFlight/2)
		return genericapiserver.DefaultBuildHandlerChain(api, c)
	}
}

// run keeps the judge up to date until ctx ends. The main server knows of this one before
// the first read of registrations.
func (j *judge) run(ctx context.Context) error {
	announced := make(chan struct{})
	go func() {
		defer close(announced)
		j.announcer.Run(ctx)
	}()
	defer func() { <-announced }()
	return j.refresher.Run(ctx)
}

var errNotRead = errors.New("the registrations of the main server have not been read")

// ready keeps the server from being called ready while it does not know what is
// registered.
func (j *judge) ready() healthz.HealthChecker {
	return healthz.NamedCheck("registrations", func(*http.Request) error {
		if j.refresher.Current() == nil {
			return errNotRead
		}
		return nil
	})
}
