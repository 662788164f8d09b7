package dev

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/commands/dev/container"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// project has the objects of the manifests and the parts that concern the program.
type project struct {
	objects []*unstructured.Unstructured
	// targets are the programs; there is at least one.
	targets []*target
	// others are the workloads of the project that do not run a program.
	others []*unstructured.Unstructured
	// remarks are sentences about registrations that a cluster would reject, and this session accepts.
	remarks []string
}

// readProject reads manifests, and builds kustomizations. It calls reading with the path of each file or directory before
// it reads it.
func readProject(paths, kustomizations []string, build Kustomize, stdin []byte, reading func(path string)) (*project, error) {
	p := &project{}
	for _, path := range paths {
		if path != manifests.Stdin {
			reading(path)
		}
	}
	if err := p.read(paths, stdin); err != nil {
		return nil, err
	}
	for _, dir := range kustomizations {
		data, err := build(dir, reading)
		if err == nil {
			err = p.read([]string{manifests.Stdin}, data)
		}
		if err != nil {
			return nil, fmt.Errorf("kustomize %s: %w", dir, err)
		}
	}
	return p, nil
}

// read adds the objects of files.
func (p *project) read(paths []string, stdin []byte) error {
	set, err := manifests.Read(paths, bytes.NewReader(stdin))
	if err != nil {
		return err
	}
	var problems []error
	for _, one := range set.Problems {
		if !one.Warning {
			problems = append(problems, fmt.Errorf("%s:%d: %s", one.File, one.Line, one.Message))
		}
	}
	for _, o := range set.Objects {
		p.objects = append(p.objects, o.Unstructured().DeepCopy())
	}
	return errors.Join(problems...)
}

// text returns a string field of an object.
func text(content any, path ...string) string {
	m, _ := content.(map[string]any)
	value, _, _ := unstructured.NestedString(m, path...)
	return value
}

// nameOf returns the name and the namespace of a namespaced object. Without a namespace, it is the namespace in
// which the session applies the object.
func nameOf(u *unstructured.Unstructured) types.NamespacedName {
	return types.NamespacedName{Namespace: cmp.Or(u.GetNamespace(), metav1.NamespaceDefault), Name: u.GetName()}
}

// list returns a list field of an object.
func list(content any, path ...string) []any {
	m, _ := content.(map[string]any)
	found, _, _ := unstructured.NestedFieldNoCopy(m, path...)
	values, _ := found.([]any)
	return values
}

// client is the clientConfig of a webhook in a registration or in a CRD.
type client struct {
	// index is the position in the registration.
	index int
	// hook is the webhook or the CRD, and config its clientConfig. Both may be changed.
	hook, config map[string]any
}

// clients returns the webhook clients of an object.
func clients(u *unstructured.Unstructured) (found []client) {
	add := func(i int, of any, path ...string) {
		m, _ := of.(map[string]any)
		value, _, _ := unstructured.NestedFieldNoCopy(m, path...)
		if config, ok := value.(map[string]any); ok {
			found = append(found, client{i, m, config})
		}
	}
	switch {
	case registers(u):
		for i, hook := range list(u.Object, "webhooks") {
			add(i, hook, "clientConfig")
		}
	case stage.Converts(u):
		add(0, u.Object, "spec", "conversion", "webhook", "clientConfig")
	}
	return found
}

// registers reports whether an object is a webhook configuration.
func registers(u *unstructured.Unstructured) bool {
	return strings.HasSuffix(u.GetKind(), "WebhookConfiguration")
}

// service returns the service of a client; empty for a URL.
func (c client) service() types.NamespacedName {
	return types.NamespacedName{Namespace: text(c.config, "service", "namespace"), Name: text(c.config, "service", "name")}
}

// localPort returns the port of a client whose URL is on this machine.
func (c client) localPort() (port int, ok bool) {
	u, err := url.Parse(text(c.config, "url"))
	if err != nil || u.Hostname() != localhost && u.Hostname() != "127.0.0.1" {
		return 0, false
	}
	port, err = strconv.Atoi(cmp.Or(u.Port(), "443"))
	return port, err == nil
}

// target returns the program that a client calls; nil for none.
func (p *project) target(c client) *target {
	port, ok := c.localPort()
	for _, t := range p.targets {
		if ok && port == t.port || slices.Contains(t.services, c.service()) {
			return t
		}
	}
	return nil
}

// local reports whether a client calls a program.
func (p *project) local(c client) bool { return p.target(c) != nil }

// services returns the services of all programs.
func (p *project) services() (found []types.NamespacedName) {
	for _, t := range p.targets {
		found = append(found, t.services...)
	}
	return found
}

// localhost is the host on which programs listen.
const localhost = "localhost"

// defaultPort is the port of controller-runtime.
const defaultPort = 9443

// number returns an integer field of an object.
func number(content any, field string) int {
	m, _ := content.(map[string]any)
	switch v := m[field].(type) {
	case int64:
		return int(v)
	case float64:
		return int(v)
	}
	return 0
}

// hosts returns the DNS names of the services of all programs.
func (p *project) hosts() []string {
	hosts := []string{localhost}
	for _, s := range p.services() {
		hosts = append(hosts, hostsOf(s)...)
	}
	return hosts
}

// hostsOf returns the DNS names of a service.
func hostsOf(s types.NamespacedName) []string {
	host := s.Name + "." + s.Namespace + ".svc"
	return []string{host, host + ".cluster.local", s.Name + "." + s.Namespace}
}

// injected are the annotations that request a CA bundle from cert-manager or OpenShift.
var injected = []string{"cert-manager.io/inject-ca-from", "cert-manager.io/inject-ca-from-secret", "cert-manager.io/inject-apiserver-ca", inject}

const (
	inject        = "service.beta.openshift.io/inject-cabundle"
	servingSecret = "service.beta.openshift.io/serving-cert-secret-name"
	certManager   = "cert-manager.io"
)

// trust sets the CA of the object's clients that call the program. A CA that the program itself wrote stays, unless
// always is set. It reports whether the object changed.
func (p *project) trust(u *unstructured.Unstructured, authority []byte, always bool) (changed bool) {
	wanted := base64.StdEncoding.EncodeToString(authority)
	asks := slices.ContainsFunc(injected, func(name string) bool { return u.GetAnnotations()[name] != "" })
	for _, c := range clients(u) {
		if now := text(c.config, "caBundle"); p.local(c) && now != wanted && (always || asks || strings.TrimSpace(now) == "") {
			c.config["caBundle"] = wanted
			changed = true
		}
	}
	return changed
}

// remark notes versions and placeholders that the session replaces or converts, and that a cluster rejects.
func (p *project) remark(u *unstructured.Unstructured) {
	if version := u.GroupVersionKind().Version; registers(u) && version != "v1" {
		p.remarks = append(p.remarks, fmt.Sprintf("%s is written in %s, which this server takes and Kubernetes from 1.22 on does not: write %s/v1, where each webhook names its sideEffects and admissionReviewVersions.",
			titleOf(u), u.GetAPIVersion(), registration.GroupName))
	}
	for _, c := range clients(u) {
		bundle := text(c.config, "caBundle")
		if _, err := base64.StdEncoding.DecodeString(bundle); err == nil || !p.local(c) {
			continue
		}
		p.remarks = append(p.remarks, fmt.Sprintf("%s has the caBundle %q, which is not base64: this session replaces it, and a cluster refuses it. Leave it out, have cert-manager inject it, or fill it in before the manifest is applied.",
			titleOf(u), strings.ToValidUTF8(bundle[:min(len(bundle), mostBundle)], "")))
	}
}

// mostBundle bounds the text of a caBundle in a sentence, in bytes.
const mostBundle = 40

// prepare replaces the controllers that a cluster would have: it removes the workloads and cert-manager's
// certificates and issuers, and adds the certificates' secrets and missing namespaces. A secret with a certificate
// for the program, as charts create one, gets the session's certificate.
func (p *project) prepare(authority []byte, certificate map[string][]byte) error {
	defined, namespaces := map[string]bool{}, map[string]bool{"": true}
	for _, name := range stage.Everywhere {
		namespaces[name] = true
	}
	for _, u := range p.objects {
		switch u.GetKind() {
		case "CustomResourceDefinition":
			defined[text(u.Object, "spec", "group")] = true
		case "Namespace":
			namespaces[u.GetName()] = true
		}
	}
	var kept []*unstructured.Unstructured
	for _, u := range p.objects {
		p.remark(u)
		p.trust(u, authority, true)
		secret := ""
		switch kind := u.GetKind(); {
		case u.GroupVersionKind().Group == certManager && !defined[certManager]:
			if secret = text(u.Object, "spec", "secretName"); kind != "Certificate" || secret == "" {
				continue
			}
		case container.MakesPods(kind):
			if !slices.ContainsFunc(p.targets, func(t *target) bool { return t.workload == u }) {
				p.others = append(p.others, u)
			}
			continue
		case kind == "ConfigMap" && u.GetAnnotations()[inject] != "":
			if err := unstructured.SetNestedField(u.Object, string(authority), "data", "service-ca.crt"); err != nil {
				return err
			}
		case kind == "Service":
			secret = u.GetAnnotations()[servingSecret]
		}
		if u.GroupVersionKind().Group != certManager || defined[certManager] {
			kept = append(kept, u)
		}
		if secret != "" {
			kept = append(kept, secretOf(u.GetNamespace(), secret, certificate))
		}
	}
	missing, err := p.certifySecrets(kept, certificate)
	if err != nil {
		return err
	}
	kept = append(kept, missing...)
	placed := slices.Concat(kept, p.others)
	for _, t := range p.targets {
		if t.workload != nil {
			placed = append(placed, t.workload)
		}
	}
	for _, u := range placed {
		if name := u.GetNamespace(); !namespaces[name] {
			namespaces[name] = true
			kept = append(kept, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}})
		}
	}
	p.objects = kept
	return nil
}
