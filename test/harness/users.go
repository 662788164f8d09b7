package harness

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	AuthenticationPath = "/apis/authentication.k8s.io/v1/"
	AuthorizationPath  = "/apis/authorization.k8s.io/v1/"
	RBACPath           = "/apis/rbac.authorization.k8s.io/v1/"
)

// Permit grants a user a rule in a namespace and waits until the server has observed it.
func Permit(t *testing.T, s *Server, ns, user, rule string) {
	t.Helper()
	h := s.HTTP(t, nil)
	path := RBACPath + "namespaces/" + ns + "/"
	role := h.Must(http.StatusCreated, "POST", path+"roles", ToJSON(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {generateName: role-}, rules: [%s]}`, rule))
	h.Must(http.StatusCreated, "POST", path+"rolebindings", ToJSON(`
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {generateName: binding-},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %s}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %s}]}`,
		role.Text("metadata", "name"), user))
	Eventually(t, "the rule is heard of", func() error {
		rules := s.HTTP(t, s.As(user, "system:authenticated")).Must(http.StatusCreated, "POST", AuthorizationPath+"selfsubjectrulesreviews",
			ToJSON(`{apiVersion: authorization.k8s.io/v1, kind: SelfSubjectRulesReview, spec: {namespace: %s}}`, ns))
		list, _ := rules.At("status", "resourceRules").([]any)
		for _, r := range list {
			if strings.Contains(fmt.Sprint(r), "selfsubject") {
				continue
			}
			return nil
		}
		return fmt.Errorf("rules: %s", rules.Raw)
	})
}

func WhoIs(t testing.TB, s *Server, token string) string {
	t.Helper()
	me, err := Client(t, s.WithToken(token)).AuthenticationV1().SelfSubjectReviews().
		Create(Context(t), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if apierrors.IsUnauthorized(err) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return me.Status.UserInfo.Username
}
