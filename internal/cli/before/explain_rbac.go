package before

import (
	"io"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

// printRBAC writes the ClusterRole of somebody who explains requests of others.
func printRBAC(out io.Writer) error {
	type role struct {
		APIVersion string              `json:"apiVersion"`
		Kind       string              `json:"kind"`
		Metadata   map[string]string   `json:"metadata"`
		Rules      []rbacv1.PolicyRule `json:"rules"`
	}
	data, err := yaml.Marshal(role{"rbac.authorization.k8s.io/v1", "ClusterRole", map[string]string{"name": "gatehouse-explain"}, offline.Rules()})
	if err != nil {
		return err
	}
	_, err = terminal.Exact(out).Write(append([]byte(roleComment), data...))
	return err
}

// roleComment stands before the ClusterRole.
const roleComment = `# What "gatehouse explain" reads of a cluster. Params of admission policies, policies of Kyverno and
# Gatekeeper, and stored objects of other kinds need the right to get or list them, too.
`
