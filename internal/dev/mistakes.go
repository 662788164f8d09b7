package dev

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
	"github.com/gatehouse-dev/gatehouse/internal/predict/offline"
)

// podKind is what a webhook for every kind is asked about.
var podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

// asked is a webhook that the program is called for.
type asked struct {
	// name is CONFIGURATION/NAME.
	name string
	client
	mutating bool
	version  review.Version
	// hook is the webhook of the registration.
	hook any
}

// registered are the webhooks of the server that are the program.
func (s *session) registered(ctx context.Context) (found []asked, err error) {
	client, err := dynamic.NewForConfig(s.stage.Address().Admin)
	if err != nil {
		return nil, err
	}
	for _, resource := range trustful[:2] {
		all, err := client.Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range all.Items {
			u := &all.Items[i]
			hooks := list(u.Object, "webhooks")
			for _, c := range clients(u) {
				if !s.project.local(c) {
					continue
				}
				hook := hooks[c.index]
				var versions []string
				for _, v := range list(hook, "admissionReviewVersions") {
					versions = append(versions, fmt.Sprint(v))
				}
				version, _ := review.Choose(versions)
				found = append(found, asked{u.GetName() + "/" + text(hook, "name"), c, strings.HasPrefix(u.GetKind(), "Mutating"), version, hook})
			}
		}
	}
	return found, nil
}

// mistakes are the common ones that can be seen before the first request, each in a sentence that says what to
// do.
func (s *session) mistakes(ctx context.Context, files string) (found []string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if s.project.port == 0 {
		return nil
	}
	conn, err := shake(ctx, s.address(), nil)
	if errors.As(err, new(tls.RecordHeaderError)) {
		return []string{fmt.Sprintf("The program speaks HTTP on port %d, and API servers call webhooks by HTTPS only: have it serve TLS with tls.crt and tls.key of %s.", s.project.port, files)}
	}
	if err != nil {
		return []string{fmt.Sprintf("The program accepts connections on port %d, and makes no TLS handshake (%v): have it serve TLS with tls.crt and tls.key of %s.", s.project.port, err, files)}
	}
	chain := conn.ConnectionState().PeerCertificates
	conn.Close()
	hooks, err := s.registered(ctx)
	if err != nil {
		return nil
	}
	if len(hooks) == 0 && len(s.project.services) > 0 && !slices.ContainsFunc(s.project.objects, func(u *unstructured.Unstructured) bool { return len(clients(u)) > 0 }) {
		found = append(found, "No registration names the program yet: it is called once there is one.")
	}
	tried := map[string]bool{}
	for _, h := range hooks {
		if mistake := untrusted(h, chain, files); mistake != "" {
			found = append(found, mistake)
			continue
		}
		at := fmt.Sprint(text(h.config, "service", "path"), text(h.config, "url"), h.mutating, h.version)
		if tried[at] {
			continue
		}
		tried[at] = true
		if mistake := s.misanswered(ctx, h); mistake != "" {
			found = append(found, mistake)
		}
	}
	return found
}

// host is the name that the certificate of the webhook has to be valid for.
func (h asked) host() string {
	if service := h.service(); service.Name != "" {
		return service.Name + "." + service.Namespace + ".svc"
	}
	return localhost
}

// untrusted says why the server would not trust the program; empty if it would.
func untrusted(h asked, chain []*x509.Certificate, files string) string {
	roots := x509.NewCertPool()
	bundle, _ := base64.StdEncoding.DecodeString(text(h.config, "caBundle"))
	roots.AppendCertsFromPEM(bundle)
	behind := x509.NewCertPool()
	for _, c := range chain[1:] {
		behind.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{DNSName: h.host(), Roots: roots, Intermediates: behind})
	switch {
	case err == nil:
		return ""
	case errors.As(err, new(x509.HostnameError)):
		return fmt.Sprintf("The certificate of the program is not for %s, by which %s is called (%v): have the program serve tls.crt and tls.key of %s, which are.", h.host(), h.name, err, files)
	}
	return fmt.Sprintf("The caBundle of %s does not trust the certificate of the program (%v): have the program serve tls.crt and tls.key of %s, and write no caBundle of its own.", h.name, err, files)
}

// mostAnswered bounds the answer to a question of the session, in bytes.
const mostAnswered = 1 << 20

// misanswered asks a webhook about an object with a name only, and says what is wrong with the form of
// the answer; empty for nothing. What the webhook says of the object is its own affair.
func (s *session) misanswered(ctx context.Context, h asked) string {
	const uid = "gatehouse-dev"
	sent, ok := s.question(h, uid)
	if !ok || h.version == "" {
		return ""
	}
	path := text(h.config, "service", "path")
	address := "https://" + s.address() + path
	if url := text(h.config, "url"); url != "" {
		address, path = url, url
	}
	// The certificate was judged before.
	transport := &http.Transport{TLSClientConfig: &tls.Config{ServerName: h.host(), InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(sent))
	if err != nil {
		return ""
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, mostAnswered))
	if err != nil {
		return ""
	}
	switch answer.StatusCode {
	case http.StatusNotFound:
		return fmt.Sprintf("The program serves nothing at %q, where %s is called (404): serve the webhook there, or change the path of its clientConfig.", path, h.name)
	case http.StatusMethodNotAllowed:
		return fmt.Sprintf("The program refuses POST at %q, by which %s is called (405): accept POST there.", path, h.name)
	}
	if answer.StatusCode != http.StatusOK {
		// An object with a name only may be too little for the program.
		return ""
	}
	var got struct {
		APIVersion string
		Kind       string
		Response   *struct{ UID string }
	}
	want := review.Group + "/" + string(h.version)
	switch err := json.Unmarshal(data, &got); {
	case err != nil || got.Response == nil:
		return fmt.Sprintf("The program answers at %q with something that is not an AdmissionReview with a response: answer %s with one.", path, h.name)
	case h.version == review.V1 && got.Response.UID == "":
		return fmt.Sprintf("The answer at %q has no response.uid, so that API servers refuse it: copy request.uid into the answer of %s.", path, h.name)
	case h.version == review.V1 && got.Response.UID != uid:
		return fmt.Sprintf("The answer at %q has another uid than the request, so that API servers refuse it: copy request.uid into the answer of %s.", path, h.name)
	case got.APIVersion != want && (h.version == review.V1 || got.APIVersion != ""):
		return fmt.Sprintf("The program answers at %q with apiVersion %q, and %s is registered for %s first: answer in the version of the request, or change admissionReviewVersions.", path, got.APIVersion, h.name, want)
	}
	if _, err := review.Decode(h.version, h.mutating, uid, answer.StatusCode, answer.Header.Get("Content-Type"), data); err != nil {
		return fmt.Sprintf("API servers refuse the answer at %q of %s: %v.", path, h.name, err)
	}
	return ""
}

// question is a review about an object of the first rule of a webhook, which has a name only. ok is false for
// a webhook about no object.
func (s *session) question(h asked, uid string) (sent []byte, ok bool) {
	rules := list(h.hook, "rules")
	if len(rules) == 0 {
		return nil, false
	}
	first := func(field string) string {
		for _, value := range list(rules[0], field) {
			return fmt.Sprint(value)
		}
		return ""
	}
	group, version, plural := first("apiGroups"), first("apiVersions"), first("resources")
	plural, _, _ = strings.Cut(plural, "/")
	var kind *offline.Kind
	if resource, served := s.stage.Kinds().Served(group, plural); served {
		if version != "*" {
			resource.Version = version
		}
		kind = s.stage.Kinds().At(resource)
	}
	if kind == nil {
		kind = s.stage.Kinds().Of(podKind)
	}
	operation := first("operations")
	if operation == "CONNECT" {
		return nil, false
	}
	if operation == "*" {
		operation = "CREATE"
	}
	object := map[string]any{"apiVersion": kind.Kind.GroupVersion().String(), "kind": kind.Kind.Kind, "metadata": map[string]any{"name": uid}}
	request := map[string]any{
		"uid": uid, "kind": metav1.GroupVersionKind(kind.Kind), "resource": metav1.GroupVersionResource(kind.Resource),
		"requestKind": metav1.GroupVersionKind(kind.Kind), "requestResource": metav1.GroupVersionResource(kind.Resource),
		"name": uid, "operation": operation, "dryRun": true, "userInfo": map[string]any{"username": uid}, "object": object,
	}
	if kind.Namespaced {
		request["namespace"] = metav1.NamespaceDefault
		object["metadata"].(map[string]any)["namespace"] = metav1.NamespaceDefault
	}
	switch operation {
	case "UPDATE":
		request["oldObject"] = object
	case "DELETE":
		request["object"], request["oldObject"] = nil, object
	}
	data, err := json.Marshal(map[string]any{"apiVersion": review.Group + "/" + string(h.version), "kind": "AdmissionReview", "request": request})
	return data, err == nil
}

// ends are what programs print before they end, and what to do.
var ends = []struct{ printed, sentence string }{
	{"KUBERNETES_SERVICE_HOST", "The program looks for the files of a pod, which have a fixed place that only root can write: have it read the kubeconfig of $KUBECONFIG."},
	{"address already in use", "Another process has a port of the program: end that process, or change the port, such as that of metrics, by a flag of the program."},
	{"permission denied", "The program may not do something. If it listens on a port below 1024, have it listen on another one and name that with --webhook-port."},
}

// explainEnd says what may have ended the program.
func (s *session) explainEnd() {
	printed := s.printed.String()
	for _, e := range ends {
		if strings.Contains(printed, e.printed) {
			s.Say("%s", e.sentence)
			return
		}
	}
}
