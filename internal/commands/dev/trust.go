package dev

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/gatehouse-dev/gatehouse/internal/commands/dev/container"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/selfsigned"
)

// trustful are the resources with webhook clients.
var trustful = []schema.GroupVersionResource{
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"},
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
}

// secrets is the resource of secrets, which pods mount.
var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// configMaps is the resource of ConfigMaps.
var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// keepTrust replaces two components of a cluster. Like a CA injector, it sets the caBundle of registrations that are
// created later or lose theirs. Like the kubelet, it writes changed ConfigMaps and Secrets into the files of the programs,
// and a certificate that a program issues itself into its certificate directory. end stops both.
func (s *session) keepTrust(ctx context.Context, authority []byte) (end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	client, err := dynamic.NewForConfig(s.stage.Address().Admin)
	if err != nil {
		cancel()
		return nil, err
	}
	project := s.project
	informers := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	for _, resource := range append(slices.Clone(trustful), secrets, configMaps) {
		fix := func(object any) {
			u, ok := object.(*unstructured.Unstructured)
			if !ok {
				return
			}
			if resource == secrets || resource == configMaps {
				s.refresh(ctx, u)
				if err := mount(u, s.programs); err != nil {
					s.Say("The certificate of the secret %s is not in the files of the program: %v", u.GetName(), err)
				}
				return
			}
			if u = u.DeepCopy(); !project.trust(u, authority, false) {
				return
			}
			_, err := client.Resource(resource).Update(ctx, u, metav1.UpdateOptions{FieldManager: "gatehouse-dev"})
			// After a conflict there is another event.
			if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				s.Say("%s %s does not get a caBundle: %v", u.GetKind(), u.GetName(), err)
			}
		}
		if _, err := informers.ForResource(resource).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: fix, UpdateFunc: func(_, now any) { fix(now) },
		}); err != nil {
			cancel()
			return nil, err
		}
	}
	informers.Start(ctx.Done())
	return func() {
		cancel()
		informers.Shutdown()
	}, nil
}

var secretKind = secrets.GroupVersion().WithKind("Secret")

// volumesOf returns the names of the ConfigMaps or Secrets in the volumes of a pod.
func volumesOf(spec *corev1.PodSpec, kind string) (names []string) {
	for _, v := range spec.Volumes {
		switch {
		case kind == "Secret" && v.Secret != nil:
			names = append(names, v.Secret.SecretName)
		case kind == "ConfigMap" && v.ConfigMap != nil:
			names = append(names, v.ConfigMap.Name)
		case v.Projected != nil:
			for _, source := range v.Projected.Sources {
				if kind == "Secret" && source.Secret != nil {
					names = append(names, source.Secret.Name)
				}
				if kind == "ConfigMap" && source.ConfigMap != nil {
					names = append(names, source.ConfigMap.Name)
				}
			}
		}
	}
	return names
}

// serving returns the files of a secret if the pods of a program mount it and its certificate is for a service of the
// program; nil otherwise.
func (t *target) serving(secret *unstructured.Unstructured) map[string][]byte {
	if t.template == nil || t.namespace() != nameOf(secret).Namespace || !slices.Contains(volumesOf(&t.template.Spec, "Secret"), secret.GetName()) {
		return nil
	}
	_, names := certificateNames(secret)
	found := contentOf(secret)
	pair, err := tls.X509KeyPair(found[names[selfsigned.CertificateFile]], found[names[selfsigned.KeyFile]])
	if err != nil || pair.Leaf.VerifyHostname(hostsOf(t.services[0])[0]) != nil {
		return nil
	}
	files := map[string][]byte{}
	for file, name := range names {
		files[file] = found[name]
	}
	return files
}

// contentOf returns the content of a secret.
func contentOf(secret *unstructured.Unstructured) map[string][]byte {
	all := content{}
	all.add([]*unstructured.Unstructured{secret})
	found, _ := all.of(nameOf(secret).Namespace)("Secret", secret.GetName())
	return found
}

// certificateNames returns the keys of a secret with parts of a certificate, all and by the name that cert-manager gives to
// the part.
func certificateNames(secret *unstructured.Unstructured) (keys []string, names map[string]string) {
	names = map[string]string{}
	for _, field := range []string{"data", "stringData"} {
		values, _, _ := unstructured.NestedMap(secret.Object, field)
		for _, name := range slices.Sorted(maps.Keys(values)) {
			part := string(container.Certificate(name, []byte(selfsigned.CertificateFile), []byte(selfsigned.KeyFile), []byte(selfsigned.AuthorityFile)))
			if part != "" {
				keys, names[part] = append(keys, name), name
			}
		}
	}
	return keys, names
}

// mount writes the files of a serving secret into the certificate directories of the programs that mount it.
func mount(secret *unstructured.Unstructured, programs []*program) error {
	for _, program := range programs {
		program.mu.Lock()
		content := program.serving(secret)
		program.mu.Unlock()
		for file, data := range content {
			if err := files.Replace(filepath.Join(program.files, file), data, 0o600, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// certifySecrets puts the session's certificate into the secrets that the programs mount: secrets with a certificate for
// the program, as charts create one, and secrets with a placeholder. It returns the secrets that the manifests lack, since
// cert-manager, a Job or the program itself makes them.
func (p *project) certifySecrets(objects []*unstructured.Unstructured, certificate map[string][]byte) (missing []*unstructured.Unstructured, err error) {
	for _, t := range p.targets {
		if t.template == nil {
			continue
		}
		for _, name := range slices.Concat(volumesOf(&t.template.Spec, "Secret"), slices.Collect(maps.Keys(t.secretVariables()))) {
			at := slices.IndexFunc(slices.Concat(objects, missing), func(u *unstructured.Unstructured) bool {
				return u.GroupVersionKind() == secretKind && nameOf(u) == types.NamespacedName{Namespace: t.namespace(), Name: name}
			})
			if at < 0 {
				keys := t.certificateFiles(name)
				if keys == nil {
					continue
				}
				missing = append(missing, secretOf(t.namespace(), name, certificate, keys...))
				continue
			}
			if at >= len(objects) {
				continue
			}
			u := objects[at]
			keys := placeholders(u)
			if t.serving(u) != nil {
				keys, _ = certificateNames(u)
				keys = append(keys, selfsigned.AuthorityFile)
			}
			if len(keys) == 0 {
				continue
			}
			made := secretOf(u.GetNamespace(), name, certificate, keys...)
			for file, data := range made.Object["data"].(map[string]any) {
				unstructured.RemoveNestedField(u.Object, "stringData", file)
				if err := unstructured.SetNestedField(u.Object, data, "data", file); err != nil {
					return nil, err
				}
			}
		}
	}
	return missing, nil
}

// certain are words in names of volumes with certificates.
var certain = []string{"cert", "tls", "ssl", "webhook", "pki"}

// certificateFiles returns the keys of a secret that the manifests lack, if it seems to have a serving certificate; nil
// otherwise.
func (t *target) certificateFiles(secret string) (keys []string) {
	for _, v := range t.template.Spec.Volumes {
		if v.Secret == nil || v.Secret.SecretName != secret {
			continue
		}
		hints := v.Name + " " + secret
		for _, item := range v.Secret.Items {
			keys = append(keys, item.Key)
		}
		for _, c := range t.template.Spec.Containers {
			for _, m := range c.VolumeMounts {
				if m.Name == v.Name {
					hints += " " + m.MountPath
					keys = append(keys, container.Mentioned(&c, m.MountPath)...)
				}
			}
		}
		if slices.ContainsFunc(certain, func(word string) bool { return strings.Contains(hints, word) }) {
			// The names of cert-manager, of kube-webhook-certgen, and of scripts.
			return append(keys, selfsigned.CertificateFile, selfsigned.KeyFile, selfsigned.AuthorityFile, "cert", "key", "ca", "cert.pem", "key.pem", "ca.pem")
		}
	}
	// A certificate and its key may be variables.
	keys = t.secretVariables()[secret]
	isFile := func(content string) bool {
		return slices.ContainsFunc(keys, func(key string) bool {
			return string(container.Certificate(key, []byte("certificate"), []byte("key"), nil)) == content
		})
	}
	if isFile("certificate") && isFile("key") {
		return keys
	}
	return nil
}

// secretVariables returns the keys of Secrets that are variables of the containers, by the name of the Secret.
func (t *target) secretVariables() map[string][]string {
	found := map[string][]string{}
	for _, c := range t.template.Spec.Containers {
		for _, v := range c.Env {
			if v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil {
				found[v.ValueFrom.SecretKeyRef.Name] = append(found[v.ValueFrom.SecretKeyRef.Name], v.ValueFrom.SecretKeyRef.Key)
			}
		}
	}
	return found
}

// placeholders returns the keys of a mounted secret with a certificate and a key that do not belong together, as templates
// have them.
func placeholders(secret *unstructured.Unstructured) []string {
	keys, names := certificateNames(secret)
	found := contentOf(secret)
	certificate, key := names[selfsigned.CertificateFile], names[selfsigned.KeyFile]
	if certificate == "" || key == "" {
		return nil
	}
	if _, err := tls.X509KeyPair(found[certificate], found[key]); err == nil {
		return nil
	}
	return keys
}

// secretOf returns a secret with the certificate in the given keys, or in the keys of cert-manager.
func secretOf(namespace, name string, certificate map[string][]byte, keys ...string) *unstructured.Unstructured {
	if keys == nil {
		keys = []string{selfsigned.CertificateFile, selfsigned.KeyFile, selfsigned.AuthorityFile}
	}
	data := map[string]any{}
	for _, key := range keys {
		if value := container.Certificate(key, certificate[selfsigned.CertificateFile], certificate[selfsigned.KeyFile], certificate[selfsigned.AuthorityFile]); value != nil {
			data[key] = base64.StdEncoding.EncodeToString(bytes.TrimSpace(value))
		}
	}
	made := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data}}
	if data[selfsigned.CertificateFile] != nil && data[selfsigned.KeyFile] != nil {
		made.Object["type"] = "kubernetes.io/tls"
	}
	made.SetNamespace(namespace)
	made.SetName(name)
	return made
}
