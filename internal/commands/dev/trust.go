package dev

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"path/filepath"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

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

// keepTrust replaces two components of a cluster. Like a CA injector, it sets the caBundle of registrations that are
// created later or lose theirs. Like the kubelet, it writes a certificate that the program issues itself, and stores
// in a secret, into the certificate directory. end stops both.
func (s *session) keepTrust(ctx context.Context, authority []byte, dir string) (end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	client, err := dynamic.NewForConfig(s.stage.Address().Admin)
	if err != nil {
		cancel()
		return nil, err
	}
	project := s.project
	informers := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	for _, resource := range append(slices.Clone(trustful), secrets) {
		fix := func(object any) {
			u, ok := object.(*unstructured.Unstructured)
			if !ok {
				return
			}
			if resource == secrets {
				if err := project.mount(u, dir); err != nil {
					s.Say("The certificate of the secret %s is not in %s: %v", u.GetName(), dir, err)
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

// serving returns the files of a secret if the pods of the program mount it and its certificate is for the service;
// nil otherwise.
func (p *project) serving(secret *unstructured.Unstructured) map[string][]byte {
	mounts := slices.ContainsFunc(p.programs, func(u *unstructured.Unstructured) bool {
		volumes := list(u.Object, "spec", "template", "spec", "volumes")
		return nameOf(u).Namespace == nameOf(secret).Namespace &&
			slices.ContainsFunc(volumes, func(v any) bool { return text(v, "secret", "secretName") == secret.GetName() })
	})
	if !mounts {
		return nil
	}
	content := map[string][]byte{}
	for _, file := range []string{selfsigned.AuthorityFile, selfsigned.KeyFile, selfsigned.CertificateFile} {
		content[file], _ = base64.StdEncoding.DecodeString(text(secret.Object, "data", file))
		if plain := text(secret.Object, "stringData", file); plain != "" {
			content[file] = []byte(plain)
		}
	}
	pair, err := tls.X509KeyPair(content[selfsigned.CertificateFile], content[selfsigned.KeyFile])
	if err != nil || pair.Leaf.VerifyHostname(p.hosts()[1]) != nil {
		return nil
	}
	return content
}

// mount writes the files of a serving secret into a directory.
func (p *project) mount(secret *unstructured.Unstructured, dir string) error {
	for file, data := range p.serving(secret) {
		if err := files.Replace(filepath.Join(dir, file), data, 0o600, false); err != nil {
			return err
		}
	}
	return nil
}
