package offline

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/clustersnapshot"
)

// LintRules are the RBAC rules that Connect and World.Lint need.
func LintRules() []rbacv1.PolicyRule {
	lists := map[string][]string{}
	for _, d := range registration.Sources() {
		lists[registration.GroupName] = append(lists[registration.GroupName], d.Resource)
	}
	for _, one := range surveyed {
		lists[one.Group] = append(lists[one.Group], one.Resource)
	}
	return clustersnapshot.Listing(lists)
}
