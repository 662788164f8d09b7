package stage

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// FurnishNamespace creates the service account that every namespace has, unless it exists.
func (s *Stage) FurnishNamespace(ctx context.Context, name string) error {
	q := HTTPRequest{Method: http.MethodPost, Path: "/api/v1/namespaces/" + url.PathEscape(name) + "/serviceaccounts", ContentType: JSON, Body: Encode(map[string]any{
		"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "default"},
	})}
	a, err := s.Admin().Do(ctx, q)
	if err != nil || a.Code == http.StatusConflict {
		return err
	}
	return a.Err(q)
}

// FurnishQuota sets the status of a quota, which admission needs to enforce it. used is nil for a namespace where
// nothing is counted yet.
func (s *Stage) FurnishQuota(ctx context.Context, namespace, name string, used corev1.ResourceList) error {
	if s.Open != nil {
		return nil
	}
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/resourcequotas/" + url.PathEscape(name)
	quota := &corev1.ResourceQuota{}
	if err := s.Admin().Must(ctx, HTTPRequest{Method: http.MethodGet, Path: path}, quota); err != nil {
		return err
	}
	quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, corev1.ResourceList{}
	for name := range quota.Spec.Hard {
		quota.Status.Used[name] = resource.MustParse("0")
		if n, ok := used[name]; ok {
			quota.Status.Used[name] = n
		}
	}
	return s.put(ctx, path+"/status", quota)
}

func (s *Stage) put(ctx context.Context, path string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return s.Admin().Must(ctx, HTTPRequest{Method: http.MethodPut, Path: path, ContentType: JSON, Body: body}, nil)
}

// FurnishRoles sets the rules of aggregated roles to the rules of the roles that they select.
func (s *Stage) FurnishRoles(ctx context.Context) error {
	if s.Open != nil {
		return nil
	}
	const path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	// A role may select an aggregated role. Each round fills in one more level.
	for range 10 {
		list := &rbacv1.ClusterRoleList{}
		if err := s.Admin().Must(ctx, HTTPRequest{Method: http.MethodGet, Path: path}, list); err != nil {
			return err
		}
		changed := false
		for i := range list.Items {
			role := &list.Items[i]
			if role.AggregationRule == nil {
				continue
			}
			rules, err := aggregated(role, list.Items)
			if err != nil {
				return err
			}
			if apiequality.Semantic.DeepEqual(rules, role.Rules) {
				continue
			}
			changed = true
			role.Rules = rules
			if err := s.put(ctx, path+"/"+url.PathEscape(role.Name), role); err != nil {
				return err
			}
		}
		if !changed {
			return nil
		}
	}
	return nil
}

// aggregated returns the rules of the roles that a role selects, in the order of their names.
func aggregated(role *rbacv1.ClusterRole, all []rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	selected := map[string][]rbacv1.PolicyRule{}
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, fmt.Errorf("ClusterRole %s: %w", role.Name, err)
		}
		for k := range all {
			if all[k].Name != role.Name && selector.Matches(labels.Set(all[k].Labels)) {
				selected[all[k].Name] = all[k].Rules
			}
		}
	}
	var rules []rbacv1.PolicyRule
	for _, name := range slices.Sorted(maps.Keys(selected)) {
		for _, rule := range selected[name] {
			if !slices.ContainsFunc(rules, func(other rbacv1.PolicyRule) bool { return apiequality.Semantic.DeepEqual(rule, other) }) {
				rules = append(rules, rule)
			}
		}
	}
	return rules, nil
}

// AwaitServed polls after definitionInterval, and then after doubling intervals up to definitionPause: some CRDs have
// megabytes.
const (
	definitionInterval = 5 * time.Millisecond
	definitionPause    = 320 * time.Millisecond
)

// AwaitServed waits until a custom resource is served. problem is the reason why it never will be.
func (s *Stage) AwaitServed(ctx context.Context, name string) (problem string, err error) {
	for pause := definitionInterval; ; pause = min(2*pause, definitionPause) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := s.Admin().Must(ctx, HTTPRequest{Method: http.MethodGet, Path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + url.PathEscape(name)}, crd); err != nil {
			return "", err
		}
		for _, c := range crd.Status.Conditions {
			switch {
			case c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse:
				return "the names are not accepted: " + c.Message, nil
			case c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue:
				if served, err := s.served(ctx, crd); err != nil || served {
					return "", err
				}
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return "", fmt.Errorf("waiting until %s is served: %w", name, context.Cause(ctx))
		}
	}
}

// served reports whether discovery lists all versions of a custom resource.
func (s *Stage) served(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) (bool, error) {
	for _, v := range crd.Spec.Versions {
		if !v.Served {
			continue
		}
		a, err := s.Admin().Do(ctx, HTTPRequest{Method: http.MethodGet, Path: "/apis/" + crd.Spec.Group + "/" + v.Name})
		if err != nil {
			return false, err
		}
		list := &metav1.APIResourceList{}
		if !a.OK() || json.Unmarshal(a.Body, list) != nil ||
			!slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == crd.Spec.Names.Plural }) {
			return false, nil
		}
	}
	return true, nil
}
