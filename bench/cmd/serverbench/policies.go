package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
	"github.com/gatehouse-dev/gatehouse/bench/internal/report"
)

// policyScenarios is the default of -scenarios with -policies.
const policyScenarios = "none,bindings=1,bindings=64,bindings=256,bindings=1024,params=1000,policies=1000"

// writers is the number of concurrent writes of policies.
const writers = 16

// policies are the ValidatingAdmissionPolicies that are registered during a load.
type policies struct {
	// bindings is the number of bindings of the policy that matches the created objects. params is the number of
	// objects that its only binding selects.
	bindings, params int
	// others is the number of policies that do not match. Each has its own expression and binding.
	others int
}

// policy returns a policy for the creation of the given resources.
func policy(name, group, resource, expression string) *admissionv1.ValidatingAdmissionPolicy {
	return &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: strings.Split(resource, ",")},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: expression}},
		},
	}
}

func binding(name, policy string) *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
}

// reads is the beginning of the expression of the matching policy: it reads the object.
const reads = "object.metadata.name.startsWith('bench-') && object.data.all(k, k.size() < 100)"

// register creates the policies and waits until they are active. remove deletes them.
func (p *policies) register(ctx context.Context, server *peer.Server) (remove func(context.Context) error, err error) {
	client, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		return nil, err
	}
	var list []*admissionv1.ValidatingAdmissionPolicy
	var bindings []*admissionv1.ValidatingAdmissionPolicyBinding
	for i := range p.others {
		name := fmt.Sprintf("other-%d", i)
		list = append(list, policy(name, "apps", "deployments", fmt.Sprintf("object.spec.replicas <= %d", i)))
		bindings = append(bindings, binding(name, name))
	}
	if p.bindings > 0 {
		list = append(list, policy("bound", "", "configmaps", reads))
		for i := range p.bindings {
			bindings = append(bindings, binding(fmt.Sprintf("bound-%d", i), "bound"))
		}
	}
	if p.params > 0 {
		with := policy("params", "", "configmaps", reads+" && params.data.limit != object.metadata.name")
		with.Spec.ParamKind = &admissionv1.ParamKind{APIVersion: "v1", Kind: "Secret"}
		list = append(list, with)
		deny := admissionv1.DenyAction
		b := binding("params", "params")
		b.Spec.ParamRef = &admissionv1.ParamRef{Namespace: "default", Selector: &metav1.LabelSelector{MatchLabels: labels}, ParameterNotFoundAction: &deny}
		bindings = append(bindings, b)
	}
	// The last policy denies the objects that the probes create. When it does, all policies are active.
	probe := policy("probe", "", "secrets,serviceaccounts", "false")
	forbidden := metav1.StatusReasonForbidden
	probe.Spec.Validations[0].Reason = &forbidden
	secrets := client.CoreV1().Secrets("default")
	if err := atOnce(ctx, p.params, func(ctx context.Context, i int) error {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("param-%d", i), Labels: labels}, StringData: map[string]string{"limit": fmt.Sprint(i)}}
		_, err := secrets.Create(ctx, s, metav1.CreateOptions{})
		return err
	}); err != nil {
		return nil, err
	}
	registrations := client.AdmissionregistrationV1()
	writePolicy := func(ctx context.Context, p *admissionv1.ValidatingAdmissionPolicy) error {
		_, err := registrations.ValidatingAdmissionPolicies().Create(ctx, p, metav1.CreateOptions{})
		return err
	}
	writeBinding := func(ctx context.Context, b *admissionv1.ValidatingAdmissionPolicyBinding) error {
		_, err := registrations.ValidatingAdmissionPolicyBindings().Create(ctx, b, metav1.CreateOptions{})
		return err
	}
	if err := errors.Join(
		atOnce(ctx, len(list), func(ctx context.Context, i int) error { return writePolicy(ctx, list[i]) }),
		atOnce(ctx, len(bindings), func(ctx context.Context, i int) error { return writeBinding(ctx, bindings[i]) }),
		writePolicy(ctx, probe), writeBinding(ctx, binding("probe", "probe")),
		await(ctx, client, true), accepted(ctx, server),
	); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		mine := metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: labels})}
		list, bindings := append(list, probe), append(bindings, binding("probe", "probe"))
		return errors.Join(
			// Deleting them as collections would delete one object at a time, and exceed the timeout of a request.
			atOnce(ctx, len(bindings), func(ctx context.Context, i int) error {
				return registrations.ValidatingAdmissionPolicyBindings().Delete(ctx, bindings[i].Name, metav1.DeleteOptions{})
			}),
			atOnce(ctx, len(list), func(ctx context.Context, i int) error {
				return registrations.ValidatingAdmissionPolicies().Delete(ctx, list[i].Name, metav1.DeleteOptions{})
			}),
			await(ctx, client, false),
			secrets.DeleteCollection(ctx, metav1.DeleteOptions{}, mine))
	}, nil
}

// atOnce calls f for the numbers below n, up to writers of them concurrently.
func atOnce(ctx context.Context, n int, f func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range n {
		group.Go(func() error { return f(ctx, i) })
	}
	return group.Wait()
}

// readyTimeout is the time in which a server must have read the policies that exist when it starts.
const readyTimeout = 3 * time.Minute

// accepted waits until the server accepts the objects that the load creates: it may still be reading the params of
// the policies.
func accepted(ctx context.Context, s *peer.Server) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		last = load.CreateOne(ctx, s)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return nil
}

// The names of the policy and the binding to copy, and the parts of the names that differ between the copies.
const (
	policyName    = "policy-0000"
	bindingName   = "binding-0000-000"
	policyNumber  = "0000"
	bindingNumber = "0000-000"
	// perTransaction is the number of copies written in one transaction.
	perTransaction = 100
)

// crowd is a number of policies that do not match, and the number of bindings of each. They are written directly into
// etcd, and the server is restarted on them.
type crowd struct{ policies, bindings int }

func (c crowd) String() string {
	if c.bindings == 1 {
		return fmt.Sprintf("%d policies in etcd that do not match", c.policies)
	}
	return fmt.Sprintf("%d policies in etcd that do not match, with %d bindings each", c.policies, c.bindings)
}

// crowds are measured one after the other. With the first one, kube-apiserver needs more memory than the machine has.
var crowds = []crowd{{10000, 1}, {1000, 100}}

// crowd measures a server that starts on a crowd: its memory, and the cost of a create.
func (o *options) crowd(ctx context.Context, b peer.Binaries, kind peer.Kind, dir string, c crowd, r *report.Table) (err error) {
	if kind == peer.GatehouseEmbedded || kind == peer.GatehouseUncontrolled || kind == peer.KubeAPIServer && c == crowds[0] {
		return nil
	}
	s, err := peer.Start(ctx, b, kind, dir)
	if err != nil {
		return err
	}
	defer func() {
		if s != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	registrations := client.AdmissionregistrationV1()
	if _, err := registrations.ValidatingAdmissionPolicies().Create(ctx, policy(policyName, "apps", "deployments", "object.spec.replicas <= 10"+policyNumber), metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := registrations.ValidatingAdmissionPolicyBindings().Create(ctx, binding(bindingName, policyName), metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := c.multiply(ctx, s.EtcdURL()); err != nil {
		return fmt.Errorf("writing policies into etcd: %w", err)
	}
	err, s = s.Stop(), nil
	if err != nil {
		return err
	}
	if s, err = peer.Start(ctx, b, kind, dir); err != nil {
		return err
	}
	r.Add("time to ready, "+c.String(), "s", string(kind), s.Ready.Seconds())
	// kube-apiserver reads policies after it is ready.
	if err := accepted(ctx, s); err != nil {
		return err
	}
	select {
	case <-time.After(max(o.idle, 15*time.Second)):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	server, _, err := s.RSS()
	if err != nil {
		return err
	}
	r.Add("memory when idle, server, "+c.String(), "MiB", string(kind), float64(server)/(1<<20))
	for _, n := range o.clients {
		l, err := measure(ctx, s, load.ConfigMap, n, o.duration)
		if err != nil {
			return err
		}
		what := fmt.Sprintf("%s, %s", c, plural(n, "client"))
		r.Add("creates, "+what, "/s", string(kind), l.rate)
		r.Add("server CPU for a create, "+what, "us", string(kind), l.cpu.Seconds()*1e6)
	}
	return nil
}

// multiply copies the only policy and the only binding of an etcd.
func (c crowd) multiply(ctx context.Context, url string) error {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, DialTimeout: time.Minute})
	if err != nil {
		return err
	}
	defer etcd.Close()
	found, err := etcd.Get(ctx, "/", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	var ops []clientv3.Op
	put := func(key string, value []byte, from, to string) {
		ops = append(ops, clientv3.OpPut(strings.ReplaceAll(key, from, to), string(bytes.ReplaceAll(value, []byte(from), []byte(to)))))
	}
	copied := 0
	for _, kv := range found.Kvs {
		key := string(kv.Key)
		switch filepath.Base(key) {
		case policyName:
			for i := 1; i < c.policies; i++ {
				put(key, kv.Value, policyNumber, fmt.Sprintf("%04d", i))
			}
			copied++
		case bindingName:
			for i := range c.policies {
				number := fmt.Sprintf("%04d", i)
				of := bytes.ReplaceAll(kv.Value, []byte(policyName), []byte("policy-"+number))
				for k := range c.bindings {
					put(key, of, bindingNumber, fmt.Sprintf("%s-%03d", number, k))
				}
			}
			copied++
		}
	}
	if copied != 2 {
		return fmt.Errorf("found %d objects to copy, want a policy and a binding", copied)
	}
	for len(ops) > 0 {
		n := min(len(ops), perTransaction)
		if _, err := etcd.Txn(ctx).Then(ops[:n]...).Commit(); err != nil {
			return err
		}
		ops = ops[n:]
	}
	return nil
}

// policiesExplained is printed above the table.
const policiesExplained = `Medians, with the smallest and largest value, of both servers as in the comparison above: 16 clients that create
ConfigMaps, with the policies of the row. The matching policy has one validation, which reads the object; with
params it is evaluated once for each of 1,000 Secrets that its binding selects. The policies that do not match are for
deployments, and have an expression and a binding each; kube-apiserver is not measured with 10,000 of them, which take
more memory than the machine has. The added CPU of a create is the server's CPU, less the CPU of a create without
policies in the same round. Policies in etcd are copies of one policy and one binding, on which the server is started.

`
