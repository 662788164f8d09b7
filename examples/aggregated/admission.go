package main

import (
	"errors"
	"net/http"

	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// judge is the server's admission: what it is judged by is registered on the main
// server, and so are the namespaces it knows.
type judge struct {
	engine    *admission.Engine
	refresher *snapshot.Refresher
	chain     apiadmission.Interface
}

// newJudge builds the chain. The caller runs the refresher, and closes the engine
// at the end.
func newJudge(main kubernetes.Interface, watched informers.SharedInformerFactory, authorize authorizer.UnconditionalAuthorizer) (*judge, error) {
	j := &judge{}
	var err error
	j.refresher, err = snapshot.NewRefresher(snapshot.Options{
		Reader:   snapshot.NewClientReader(main.Discovery().RESTClient()),
		Observer: admission.CountRead,
	})
	if err != nil {
		return nil, err
	}
	namespaces := admission.ClusterNamespaces{Lister: watched.Core().V1().Namespaces().Lister(), Client: main}
	j.engine, err = admission.New(admission.Options{Snapshots: j.refresher, Namespaces: namespaces, Authorizer: authorize})
	if err != nil {
		return nil, err
	}
	j.chain = admission.Chain(
		admission.Plugin{Name: admission.NamespaceLifecycleName, Interface: admission.NewNamespaceLifecycle(namespaces)},
		admission.Plugin{Name: admission.InitializersName, Interface: j.engine.Initializers()},
		admission.Plugin{Name: admission.MutatingWebhookName, Interface: j.engine.MutatingWebhooks()},
		admission.Plugin{Name: admission.GenericWebhookName, Interface: j.engine.ExternalHooks()},
		admission.Plugin{Name: admission.ValidatingWebhookName, Interface: j.engine.ValidatingWebhooks()},
	)
	return j, nil
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
