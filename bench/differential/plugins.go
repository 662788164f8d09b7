package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// pluginCases has a directory for each profile, with a file for each plugin. The cases have the same form as the
// cases of admission policies.
const pluginCases = "cases/plugins"

// profile is the server configuration for the cases of some plugins.
type profile struct {
	// name is the name of the directory.
	name string
	// enabled lists the plugins to enable in addition to the default ones.
	enabled []string
	// configuration is the content of the file of --admission-control-config-file. {images} is replaced by a
	// kubeconfig of the image policy webhook.
	configuration string
	// If fair, the comparison includes the FlowSchema and the PriorityLevelConfiguration that the answers name.
	fair bool
	// If refusing, the servers reject every create. The objects that the cases need are created before, while the
	// plugins are disabled.
	refusing bool
}

var profiles = []profile{
	{name: "default"},
	{name: "configured", enabled: []string{
		"AlwaysAdmit", "NamespaceExists", "LimitPodHardAntiAffinityTopology", "NodeRestriction", "AlwaysPullImages", "ImagePolicyWebhook",
		"PodNodeSelector", "PodTolerationRestriction", "EventRateLimit", "ExtendedResourceToleration", "OwnerReferencesPermissionEnforcement",
		"DenyServiceExternalIPs",
	}, configuration: `
- name: ImagePolicyWebhook
  configuration: {imagePolicy: {kubeConfigFile: "{images}", allowTTL: 50, denyTTL: 50, retryBackoff: 1, defaultAllow: true}}
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline, warn: restricted, warn-version: v1.30}
    exemptions: {usernames: [exempt], runtimeClasses: [sandboxed], namespaces: [exempted]}
- name: PodNodeSelector
  configuration: {podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: pool=main, selective: pool=side}}
- name: PodTolerationRestriction
  configuration:
    apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1
    kind: Configuration
    default: [{key: everywhere, operator: Exists}]
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits: [{type: Namespace, qps: 1, burst: 1, cacheSize: 100}]
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - {resource: persistentvolumeclaims, matchContains: [gold.storageclass.storage.k8s.io/requests.storage]}
    - {resource: pods, matchScopes: [{scopeName: PriorityClass, operator: In, values: [system-cluster-critical]}]}
`},
	{name: "provision", enabled: []string{"NamespaceAutoProvision"}},
	{name: "fair", fair: true},
	{name: "deny", enabled: []string{"AlwaysDeny"}, refusing: true},
}

// loadPlugins returns the cases of a profile.
func loadPlugins(profile string) ([]policyCase, error) {
	var cases []policyCase
	err := fs.WalkDir(files, path.Join(pluginCases, profile), func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(file) != ".yaml" {
			return err
		}
		some, err := documents[policyCase](file)
		for i := range some {
			some[i].Name = "plugins/" + profile + "/" + strings.TrimSuffix(path.Base(file), ".yaml") + ": " + some[i].Name
		}
		cases = append(cases, some...)
		return err
	})
	return cases, err
}

// flags returns the server flags of the profile.
func (p profile) flags(dir, images string) ([]string, error) {
	var flags []string
	if len(p.enabled) > 0 {
		flags = append(flags, "--enable-admission-plugins="+strings.Join(p.enabled, ","))
	}
	if p.configuration == "" {
		return flags, nil
	}
	file := filepath.Join(dir, p.name+".yaml")
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:" + strings.ReplaceAll(p.configuration, "{images}", images)
	return append(flags, "--admission-control-config-file="+file), os.WriteFile(file, []byte(text), 0o600)
}

// plugins runs the cases of built-in admission plugins. The default profile uses the running servers.
func (r *runner) plugins(ctx context.Context, only *regexp.Regexp) error {
	hook, err := peer.StartWebhook(ctx, r.lab.binaries, filepath.Join(r.lab.dir, "webhook"))
	if err != nil {
		return err
	}
	defer hook.Stop()
	values, err := newValues()
	if err != nil {
		return err
	}
	values["{webhook}"], values["{ca}"] = hook.URL, base64.StdEncoding.EncodeToString(hook.CA)
	images, stop, err := serveImagePolicy(filepath.Join(r.lab.dir, "images.kubeconfig"))
	if err != nil {
		return err
	}
	defer stop()
	for _, p := range profiles {
		if err := r.profile(ctx, p, only.MatchString, images, values); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// profile runs the cases of a profile whose names are wanted.
func (r *runner) profile(ctx context.Context, p profile, wanted func(name string) bool, images string, values map[string]string) (err error) {
	cases, err := loadPlugins(p.name)
	if err != nil {
		return err
	}
	cases = slices.DeleteFunc(cases, func(c policyCase) bool { return !wanted(c.Name) })
	if len(cases) == 0 {
		return nil
	}
	given := make([][]map[string]any, len(cases))
	for i, c := range cases {
		// The profiles without flags share servers.
		ns := fmt.Sprintf("plugin-%s-%03d", p.name, i)
		if cases[i], err = c.with(ns, values); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		given[i] = append(namespaceObjects(ns), cases[i].Given...)
	}
	furnish := func(s *session) error {
		for _, object := range slices.Concat(given...) {
			if err := s.create(ctx, object); err != nil && !(s.emulates && errors.Is(err, errUnexpected)) {
				return err
			}
		}
		return nil
	}
	flags, err := p.flags(r.lab.dir, images)
	if err != nil {
		return err
	}
	if len(flags) > 0 {
		var before func(*session) error
		if p.refusing {
			before = furnish
		}
		servers, err := r.lab.start(ctx, before, flags...)
		if err != nil {
			return err
		}
		outside := r.pair
		r.pair = servers
		defer func() {
			r.pair = outside
			err = errors.Join(err, servers.stop())
		}()
	}
	for _, s := range r.sessions() {
		if p.fair {
			s.flows = map[string]string{}
		}
	}
	for i, c := range cases {
		if p.refusing {
			break
		}
		if err := r.create(ctx, c.Name, given[i]); err != nil {
			return err
		}
	}
	for i, c := range cases {
		if err := r.policyCase(ctx, c, i); errors.Is(err, errUnexpected) {
			r.tally.unexpected = append(r.tally.unexpected, fmt.Sprintf("%s: %v", c.Name, err))
		} else if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return nil
}

// anyPod is the base of the pods of the cases.
var anyPod = map[string]any{
	"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"generateName": "made-"},
	"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}},
}

// newValues returns the replacements of words in braces, except {ns}.
func newValues() (map[string]string, error) {
	values := map[string]string{}
	for word, make := range map[string]func() ([]byte, error){
		"{request of jane}":    func() ([]byte, error) { return certificateRequest("jane") },
		"{request of masters}": func() ([]byte, error) { return certificateRequest("jane", "system:masters") },
		"{certificate}":        selfSigned,
	} {
		data, err := make()
		if err != nil {
			return nil, err
		}
		values[word] = base64.StdEncoding.EncodeToString(data)
	}
	authority, err := selfSigned()
	values["{authority}"] = string(authority)
	return values, err
}

// podsFilled completes the requests that contain a pod.
func podsFilled(requests []policyRequest) []policyRequest {
	filled := slices.Clone(requests)
	for i, q := range filled {
		if q.Pod == nil {
			continue
		}
		if q.Do == "" {
			filled[i].Do = "POST {pods}"
		}
		base := maps.Clone(anyPod)
		if metadata, _ := q.Pod["metadata"].(map[string]any); metadata["name"] != nil {
			delete(base, "metadata")
		}
		filled[i].Body, filled[i].Pod = merge(base, q.Pod), nil
	}
	return filled
}
