package main

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// prefix is the prefix of the names of all objects.
const prefix = "inforcebench"

// change is a kind of change that affects admission.
type change struct {
	name string
	// policy returns a policy that rejects Secrets in the namespace of the change; nil if no policy is needed.
	policy func(c change) (*admissionv1.ValidatingAdmissionPolicySpec, *admissionv1.ValidatingAdmissionPolicyBindingSpec)
	// write makes the server reject Secrets, or admit them again.
	write func(ctx context.Context, client kubernetes.Interface, hook *peer.Webhook, refuse bool) error
}

// changes are all kinds of changes, in the order of the table.
var changes = []change{
	{name: "registration", write: writeRegistration},
	{name: "param", policy: judgedByParam, write: writeParam},
	{name: "namespace", policy: judgedByLabel, write: writeLabel},
	{name: "role", policy: judgedByRole, write: writeRoleBinding},
}

func names(of []change) []string {
	var all []string
	for _, c := range of {
		all = append(all, c.name)
	}
	return all
}

// namespace is the namespace in which Secrets are created.
func (c change) namespace() string { return prefix + "-" + c.name }

// prepare creates the objects that exist before the first change. They admit Secrets.
func (c change) prepare(ctx context.Context, client kubernetes.Interface) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace()}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	if c.policy == nil {
		return nil
	}
	param := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: prefix}, Data: map[string]string{"refuse": "no"}}
	if _, err := client.CoreV1().ConfigMaps(c.namespace()).Create(ctx, param, metav1.CreateOptions{}); err != nil {
		return err
	}
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: prefix},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}}},
	}
	if _, err := client.RbacV1().Roles(c.namespace()).Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return err
	}
	policy, binding := c.policy(c)
	fail, here := admissionv1.Fail, map[string]string{corev1.LabelMetadataName: c.namespace()}
	policy.FailurePolicy = &fail
	policy.MatchConstraints = &admissionv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: here},
		ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
		}}},
	}
	binding.PolicyName, binding.ValidationActions = c.namespace(), []admissionv1.ValidationAction{admissionv1.Deny}
	meta := metav1.ObjectMeta{Name: c.namespace()}
	registrations := client.AdmissionregistrationV1()
	_, err := registrations.ValidatingAdmissionPolicies().Create(ctx, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: *policy}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = registrations.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: *binding}, metav1.CreateOptions{})
	return err
}

// admits returns a policy that admits Secrets if the expression is true.
func admits(expression string) *admissionv1.ValidatingAdmissionPolicySpec {
	forbidden := metav1.StatusReasonForbidden
	return &admissionv1.ValidatingAdmissionPolicySpec{Validations: []admissionv1.Validation{{Expression: expression, Reason: &forbidden}}}
}

// writeRegistration registers a webhook or deletes it.
func writeRegistration(ctx context.Context, client kubernetes.Interface, hook *peer.Webhook, refuse bool) error {
	configurations := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if !refuse {
		return configurations.Delete(ctx, prefix, metav1.DeleteOptions{})
	}
	url := hook.URL + "/deny"
	none, fail := admissionv1.SideEffectClassNone, admissionv1.Fail
	_, err := configurations.Create(ctx, &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: prefix},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name:         "deny.inforce.bench.gatehouse.dev",
			ClientConfig: admissionv1.WebhookClientConfig{URL: &url, CABundle: hook.CA},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
			}},
			FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	return err
}

func judgedByParam(c change) (*admissionv1.ValidatingAdmissionPolicySpec, *admissionv1.ValidatingAdmissionPolicyBindingSpec) {
	policy, deny := admits("params.data.refuse == 'no'"), admissionv1.DenyAction
	policy.ParamKind = &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	return policy, &admissionv1.ValidatingAdmissionPolicyBindingSpec{
		ParamRef: &admissionv1.ParamRef{Name: prefix, Namespace: c.namespace(), ParameterNotFoundAction: &deny},
	}
}

func writeParam(ctx context.Context, client kubernetes.Interface, _ *peer.Webhook, refuse bool) error {
	value := "no"
	if refuse {
		value = "yes"
	}
	_, err := client.CoreV1().ConfigMaps(prefix+"-param").Patch(ctx, prefix, types.MergePatchType,
		fmt.Appendf(nil, `{"data":{"refuse":%q}}`, value), metav1.PatchOptions{})
	return err
}

// label is the label of a namespace whose Secrets are rejected.
const label = prefix + "/refuse"

func judgedByLabel(change) (*admissionv1.ValidatingAdmissionPolicySpec, *admissionv1.ValidatingAdmissionPolicyBindingSpec) {
	return admits("false"), &admissionv1.ValidatingAdmissionPolicyBindingSpec{MatchResources: &admissionv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label: "yes"}},
	}}
}

func writeLabel(ctx context.Context, client kubernetes.Interface, _ *peer.Webhook, refuse bool) error {
	value := "null"
	if refuse {
		value = `"yes"`
	}
	_, err := client.CoreV1().Namespaces().Patch(ctx, prefix+"-namespace", types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, label, value), metav1.PatchOptions{})
	return err
}

func judgedByRole(c change) (*admissionv1.ValidatingAdmissionPolicySpec, *admissionv1.ValidatingAdmissionPolicyBindingSpec) {
	return admits(fmt.Sprintf("!authorizer.serviceAccount(%q, 'default').group('').resource('configmaps').namespace(%[1]q).check('get').allowed()",
		c.namespace())), &admissionv1.ValidatingAdmissionPolicyBindingSpec{}
}

func writeRoleBinding(ctx context.Context, client kubernetes.Interface, _ *peer.Webhook, refuse bool) error {
	const namespace = prefix + "-role"
	bindings := client.RbacV1().RoleBindings(namespace)
	if !refuse {
		return bindings.Delete(ctx, prefix, metav1.DeleteOptions{})
	}
	_, err := bindings.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: prefix},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: prefix},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "default"}},
	}, metav1.CreateOptions{})
	return err
}
