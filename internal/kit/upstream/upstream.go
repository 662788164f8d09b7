package upstream

import "k8s.io/apiserver/pkg/authorization/authorizer"

// Authorizer decides whether a request is allowed, without conditions. Kubernetes 1.36 and older name it
// authorizer.Authorizer.
type Authorizer = authorizer.UnconditionalAuthorizer
