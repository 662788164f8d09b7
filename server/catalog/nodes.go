package catalog

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// nodeSubresources are answered by an agent on a node, and this server has no
// nodes that run anything. Admission judges those that connect to something;
// logs are read, and reads are not judged. Then the answer is 501.
var nodeSubresources = []string{
	"pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "pods/log", "nodes/proxy", "services/proxy",
}

func answerForNodes(groups []Group) {
	for _, g := range groups {
		if g.Name != "" {
			continue
		}
		for _, v := range g.Versions {
			for _, path := range nodeSubresources {
				resource, _, _ := strings.Cut(path, "/")
				agent := noAgent{path: path, parent: v.Storage[resource].(rest.Getter), done: "nothing was done"}
				switch s := v.Storage[path].(type) {
				case rest.Connecter:
					agent.done = "admission has judged the request, nothing was done"
					v.Storage[path] = noAgentConnect{Connecter: s, noAgent: agent}
				case rest.GetterWithOptions:
					v.Storage[path] = noAgentGet{GetterWithOptions: s, noAgent: agent}
				}
			}
		}
	}
}

// noAgent is a subresource that only a node's agent could answer for.
type noAgent struct {
	path   string
	parent rest.Getter
	// done is what was done with the request all the same.
	done string
}

// refuse says that the object does not exist, or else that nobody can answer
// for it.
func (n noAgent) refuse(ctx context.Context, name string) error {
	if _, err := n.parent.Get(ctx, name, &metav1.GetOptions{}); err != nil {
		return err
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotImplemented,
		Reason:  metav1.StatusReasonMethodNotAllowed,
		Message: fmt.Sprintf("%s needs an agent on the node, and this server has none: %s", n.path, n.done),
	}}
}

type noAgentConnect struct {
	rest.Connecter
	noAgent
}

func (s noAgentConnect) New() runtime.Object { return s.Connecter.(rest.Storage).New() }
func (s noAgentConnect) Destroy()            { s.Connecter.(rest.Storage).Destroy() }

func (s noAgentConnect) Connect(ctx context.Context, name string, _ runtime.Object, _ rest.Responder) (http.Handler, error) {
	// Proxies of services may name a scheme and a port: "https:web:443".
	switch parts := strings.Split(name, ":"); len(parts) {
	case 2:
		name = parts[0]
	case 3:
		name = parts[1]
	}
	return nil, s.refuse(ctx, name)
}

type noAgentGet struct {
	rest.GetterWithOptions
	noAgent
}

func (s noAgentGet) New() runtime.Object { return s.GetterWithOptions.(rest.Storage).New() }
func (s noAgentGet) Destroy()            { s.GetterWithOptions.(rest.Storage).Destroy() }

func (s noAgentGet) Get(ctx context.Context, name string, _ runtime.Object) (runtime.Object, error) {
	return nil, s.refuse(ctx, name)
}
