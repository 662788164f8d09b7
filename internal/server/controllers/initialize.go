package controllers

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// systemAccounts is the prefix of the names of the users that controllers act as.
const systemAccounts = "system:serviceaccount:kube-system:"

// Initializing returns an authorizer that decides like inner, and also lets the accounts of
// controllers write objects that are not initialized (S11.63). A controller must be able to remove
// its finalizer from such an object, and the garbage collector must be able to remove its owners.
// The default roles of these accounts have no rules for initializers.
func Initializing(inner authorizer.Authorizer) authorizer.Authorizer { return initializing{inner} }

type initializing struct{ authorizer.Authorizer }

// Authorize implements authorizer.Authorizer.
func (i initializing) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetVerb() == initializers.Verb && a.GetUser() != nil {
		if account, ok := strings.CutPrefix(a.GetUser().GetName(), systemAccounts); ok &&
			slices.ContainsFunc(table, func(r row) bool { return r.account == account }) {
			return authorizer.DecisionAllow, "", nil
		}
	}
	return i.Authorizer.Authorize(ctx, a)
}

// Counts reports whether a user is the account of a controller that counts objects and makes
// missing ones (S11.64).
func Counts(user string) bool {
	account, ok := strings.CutPrefix(user, systemAccounts)
	return ok && slices.ContainsFunc(table, func(r row) bool { return r.counts && r.account == account })
}
