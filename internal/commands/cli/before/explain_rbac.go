package before

import (
	"io"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
)

// printRBAC writes a ClusterRole with the rules that a command needs in a cluster, after a comment.
func printRBAC(out io.Writer, name, comment string, rules []rbacv1.PolicyRule) error {
	data, err := yaml.Marshal(rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules,
	})
	if err != nil {
		return err
	}
	_, err = terminal.Exact(out).Write(append([]byte(comment), data...))
	return err
}

// The comments before the ClusterRoles.
const (
	explainComment = `# What "gatehouse explain" reads of a cluster. Params of admission policies, policies of Kyverno and
# Gatekeeper, and stored objects of other kinds need the right to get or list them, too.
`
	snapshotComment = `# Reads of a cluster by "gatehouse check --from-cluster" and "gatehouse snapshot". Params of admission
# policies need the right to list them, too. Where a user may list a resource in some namespaces only,
# only objects of these namespaces are checked with it.
`
)

// printSnapshotRBAC writes the ClusterRole that check --from-cluster and snapshot need.
func printSnapshotRBAC(out io.Writer) error {
	return printRBAC(out, "gatehouse-snapshot", snapshotComment, clustersnapshot.Rules())
}
