package stores

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/internal/kit/upstream"
)

// nodeSubresources are answered by an agent on a node, and this server has no nodes that run
// containers. Subresources that connect pass admission; reads, such as logs, do not. Then the
// answer is 501.
var nodeSubresources = []string{"pods/attach", "pods/exec", "pods/portforward", "pods/log", "nodes/proxy"}

// upgraded are the subresources that clients reach by upgrading a connection: with POST, or with
// GET, the only method of WebSockets. Both requests are authorized as a create.
var upgraded = []string{"pods/attach", "pods/exec", "pods/portforward"}

func answerForNodes(groups []Group, authorizer upstream.Authorizer) {
	for v := range Versions(groups, "") {
		for _, path := range nodeSubresources {
			resource, _, _ := strings.Cut(path, "/")
			agent := noAgent{path: path, parent: v.Storage[resource].(rest.Getter), done: "nothing was done"}
			if slices.Contains(upgraded, path) {
				agent.creates = authorizer
			}
			switch s := v.Storage[path].(type) {
			case rest.Connecter:
				agent.done = "admission ran for the request, nothing else was done"
				v.Storage[path] = noAgentConnect{Connecter: s, noAgent: agent}
			case rest.GetterWithOptions:
				v.Storage[path] = noAgentGet{GetterWithOptions: s, noAgent: agent}
			}
		}
	}
}

// noAgent is a subresource that only a node's agent could answer for.
type noAgent struct {
	path   string
	parent rest.Getter
	// done describes, for the error, the part of the request that the server carried out.
	done string
	// creates, when set, authorizes creates; the request's own verb is not enough.
	creates upstream.Authorizer
}

// authorize refuses users that may not create.
func (n noAgent) authorize(ctx context.Context) error {
	info, ok := request.RequestInfoFrom(ctx)
	if n.creates == nil || (ok && info.Verb == "create") {
		return nil
	}
	attributes, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("%s: reading the user of the request: %w", n.path, err))
	}
	decision, reason, err := n.creates.Authorize(ctx, creating{attributes})
	if err != nil {
		return err
	}
	if decision != authorizer.DecisionAllow {
		resource := schema.GroupResource{Group: attributes.GetAPIGroup(), Resource: attributes.GetResource()}
		return apierrors.NewForbidden(resource, attributes.GetName(), errors.New(reason))
	}
	return nil
}

// creating is a request with the verb create.
type creating struct{ authorizer.Attributes }

// GetVerb implements authorizer.Attributes.
func (creating) GetVerb() string { return "create" }

// refuse returns the error that the object does not exist, or else that this server has no
// agent on its node.
func (n noAgent) refuse(ctx context.Context, name string) error {
	if _, err := n.parent.Get(ctx, name, &metav1.GetOptions{}); err != nil {
		return err
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotImplemented,
		Reason:  metav1.StatusReasonMethodNotAllowed,
		Message: fmt.Sprintf("%s needs an agent on the node, but this server has none: %s", n.path, n.done),
	}}
}

type noAgentConnect struct {
	rest.Connecter
	noAgent
}

func (s noAgentConnect) New() runtime.Object { return s.Connecter.(rest.Storage).New() }
func (s noAgentConnect) Destroy()            { s.Connecter.(rest.Storage).Destroy() }

func (s noAgentConnect) Connect(ctx context.Context, name string, _ runtime.Object, _ rest.Responder) (http.Handler, error) {
	if err := s.authorize(ctx); err != nil {
		return nil, err
	}
	// Proxies may name a scheme and a port: "https:node:10250".
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
