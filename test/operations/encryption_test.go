package operations

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	kms "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/testing/v2"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// encryptionConfiguration writes an EncryptionConfiguration with providers for resources.
func encryptionConfiguration(t *testing.T, file, resources string, providers ...string) string {
	t.Helper()
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [" + resources + "]\n  providers:\n"
	for _, p := range providers {
		text += "  - " + p + "\n"
	}
	return harness.WriteFile(t, file, text)
}

// secretbox is a provider with one key.
func secretbox(name string) string {
	return fmt.Sprintf("secretbox: {keys: [{name: %s, secret: %s}]}", name, base64.StdEncoding.EncodeToString([]byte(fmt.Sprintf("%-32s", name))))
}

const unencrypted = "identity: {}"

// holding lists the files below directories that contain a text.
func holding(t *testing.T, text string, dirs ...string) []string {
	t.Helper()
	var found []string
	for _, dir := range dirs {
		if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			if bytes.Contains(data, []byte(text)) {
				found = append(found, path)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func marked(kind, apiVersion, name, mark, more string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"annotations":{"note":%q}}%s}`, apiVersion, kind, name, mark, more)
}

const secrets = "/api/v1/namespaces/default/secrets"

// S29.1, S29.2: with encryption at rest, the text of an object of any kind is in no file of the data
// directory, of etcd or of a backup, and all features work as without encryption: reads, lists, tables,
// watches, registrations, namespace selectors, initializers, custom resources, namespace deletion, restarts,
// and restores.
func TestEncryptionAtRest(t *testing.T) {
	t.Parallel()
	// TestSecretsEncryptionOfServersThatShareAnEtcd has an external etcd in the ordinary run.
	for _, where := range []string{"embedded", "external"}[:speed.Of(1, 2)] {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := encryptionConfiguration(t, filepath.Join(dir, "encryption.yaml"), "'*.*'", secretbox("one"), unencrypted)
			flags := []string{"--admission-consistency", "strict", "--encryption-provider-config", file}
			dirs := []string{filepath.Join(dir, "data")}
			var external []string
			if where == "external" {
				etcd := harness.StartEtcd(t)
				external = []string{"--etcd-servers", etcd.URL}
				dirs = append(dirs, etcd.Dir())
			}
			first := append(external, flags...)
			if speed.IsLong() {
				first = append(external, "--admission-consistency", "strict")
			}
			s := harness.StartOn(t, dirs[0], first...)
			s.HTTP(t, nil).Must(http.StatusCreated, "POST", secrets, marked("Secret", "v1", "before", "stored-in-clear", ""))
			if speed.IsLong() {
				if len(holding(t, "stored-in-clear", dirs...)) == 0 {
					t.Error("the search does not find what is stored in clear")
				}
				s.Stop(t)
				s.Flags(append(external, flags...)...)
				s.Restart(t)
			}
			useEncrypted(t, s, speed.IsLong())
			if found := holding(t, "never-in-clear", dirs...); len(found) > 0 {
				t.Errorf("in clear in %q", found)
			}
			if where == "external" {
				// The shared keys of the servers are encrypted like Secrets, once a server has read them.
				another := harness.StartOn(t, filepath.Join(dir, "another"), append(external, flags...)...)
				another.HTTP(t, nil).Get(secrets + "/kept")
				if out := harness.Refuses(t, append(external, "--data-dir", filepath.Join(dir, "third"))...); !strings.Contains(out, `key "one" of provider secretbox`) {
					t.Errorf("a server without the configuration: %s", out)
				}
				return
			}
			saved := filepath.Join(dir, "saved.tar")
			backUp(t, s.DataDir, saved)
			if found := holding(t, "never-in-clear", saved); len(found) > 0 {
				t.Error("in clear in the backup")
			}
			s.HTTP(t, nil).Must(http.StatusOK, "DELETE", secrets+"/kept", "")
			s.Stop(t)
			if r := backups(t, s.DataDir, "restore", saved); r.Code != 0 {
				t.Fatal(r.Err)
			}
			s.Restart(t)
			s.HTTP(t, nil).Get(secrets + "/kept")
			s.HTTP(t, nil).Get(secrets + "/before")
			s.HTTP(t, nil).Must(http.StatusOK, "GET", fmt.Sprintf(configMaps, "default")+"/allowed-false", "")
		})
	}
}

// useEncrypted creates objects of many kinds that contain the marker, and uses them, also after a restart if restarts
// is true.
func useEncrypted(t *testing.T, s *harness.Server, restarts bool) {
	t.Helper()
	const mark = "never-in-clear"
	h := s.HTTP(t, nil)
	watch := h.Watch(secrets + "?watch=1")
	h.Must(http.StatusCreated, "POST", secrets, marked("Secret", "v1", "kept", mark, `,"stringData":{"a":"never-in-clear"}`))
	h.Must(http.StatusCreated, "POST", namespaces, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop","labels":{"judged":"yes"},"annotations":{"note":"never-in-clear"}}}`)
	hooks := harness.NewWebhookServer(t, nil)
	hook := harness.Webhook("deny", "shop", hooks.Hook("/", harness.Deny(map[string]any{"message": "no"})), harness.Rules(harness.Rule("CREATE", "/v1/configmaps")), "namespaceSelector: {matchLabels: {judged: \"yes\"}}")
	configuration := harness.Parsed(t, harness.Configuration(validating, "deny", hook))
	harness.Merge(configuration, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"note": mark}}})
	h.Must(http.StatusCreated, "POST", registrations+"validatingwebhookconfigurations", harness.AsJSON(configuration))
	group := harness.Widgets(t, s, "shop")
	h.Must(http.StatusOK, "PATCH", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets."+group, `{"metadata":{"annotations":{"note":"never-in-clear"}}}`, "Content-Type", "application/merge-patch+json")
	widgets := "/apis/" + group + "/v1/namespaces/shop/widgets"
	h.Must(http.StatusCreated, "POST", widgets, marked("Widget", group+"/v1", "w", mark, ""))
	deployments := "/apis/apps/v1/namespaces/shop/deployments"
	h.Must(http.StatusGatewayTimeout, "POST", deployments+"?timeout=1s", strings.Replace(harness.Uninitialized("hidden"), `"metadata":{`, `"metadata":{"annotations":{"note":"never-in-clear"},`, 1))
	for _, again := range []bool{false, true} {
		if again && !restarts {
			break
		}
		if again {
			s.Stop(t)
			s.Restart(t)
			h = s.HTTP(t, nil)
		}
		if got := h.Get(secrets+"/kept").Text("metadata", "annotations", "note"); got != mark {
			t.Errorf("the Secret has %q", got)
		}
		if names := harness.Names(h.Get(secrets)); len(names) != 2 {
			t.Errorf("the list has %q", names)
		}
		if rows, _ := h.Get(secrets, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").At("rows").([]any); len(rows) != 2 {
			t.Errorf("the table has %v", rows)
		}
		create(t, s, http.StatusBadRequest, fmt.Sprintf(configMaps, "shop"), named("denied"))
		create(t, s, http.StatusCreated, fmt.Sprintf(configMaps, "default"), named(fmt.Sprintf("allowed-%t", again)))
		h.Get(widgets + "/w")
		if names := harness.Names(h.Get(deployments)); len(names) > 0 {
			t.Errorf("before it is initialized, the list has %q", names)
		}
		if got := harness.Pending(h.Get(deployments + "/hidden" + harness.Including).Body); got != "a,b" {
			t.Errorf("pending: %s", got)
		}
	}
	if e := watch.Next(); e.Type != "ADDED" {
		t.Errorf("the watch begins with %v", e)
	}
	h.Must(http.StatusOK, "PUT", deployments+"/hidden"+harness.Including, func() string {
		d := h.Get(deployments + "/hidden" + harness.Including)
		delete(d.Body["metadata"].(map[string]any), "initializers")
		return harness.AsJSON(d.Body)
	}())
	h.Get(deployments + "/hidden")
	h.Must(http.StatusOK, "DELETE", namespaces+"/shop", "")
	harness.Eventually(t, "the namespace is gone, with its objects", func() error {
		if r := h.Do("GET", namespaces+"/shop", ""); r.Code != http.StatusNotFound {
			return fmt.Errorf("%d %s", r.Code, r.Raw)
		}
		return nil
	})
}

// S29.4: a server without the key of its data serves all other data, and reports the missing key.
func TestALostKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := encryptionConfiguration(t, filepath.Join(dir, "encryption.yaml"), "secrets", secretbox("one"), unencrypted)
	s := harness.StartOn(t, filepath.Join(dir, "data"), "--encryption-provider-config", file)
	s.HTTP(t, nil).Must(http.StatusCreated, "POST", secrets, marked("Secret", "v1", "kept", "x", ""))
	if r := harness.Run(t, "secrets-encryption", "enable", "--data-dir", s.DataDir); r.Code != 1 || !strings.Contains(r.Err, "takes its keys from the file of --encryption-provider-config") {
		t.Errorf("S29.8: a key for a server with a file of its own: %d %s", r.Code, r.Err)
	}
	s.Stop(t)
	encryptionConfiguration(t, file, "secrets", secretbox("two"), unencrypted)
	s.Restart(t)
	h := s.HTTP(t, nil)
	h.Get(fmt.Sprintf(configMaps, "default"))
	for _, path := range []string{secrets + "/kept", secrets} {
		r := h.Do("GET", path, "")
		if r.Code != http.StatusInternalServerError || !strings.Contains(r.Text("message"), `key \"one\" of provider secretbox, and `+file) && !strings.Contains(r.Text("message"), `key "one" of provider secretbox, and `+file) {
			t.Errorf("%s: %d %s", path, r.Code, r.Raw)
		}
	}
	s.Stop(t)
	harness.WriteFile(t, file, "kind: Nonsense")
	if out := harness.Refuses(t, "--data-dir", s.DataDir, "--encryption-provider-config", file); !strings.Contains(out, "--encryption-provider-config: "+file) {
		t.Error(out)
	}
	if !speed.IsLong() {
		return
	}
	encryptionConfiguration(t, file, "secrets", secretbox("two"), secretbox("one"), unencrypted)
	s.Restart(t)
	s.HTTP(t, nil).Get(secrets + "/kept")
}

// S29.6: a KMS plugin that fails, hangs or is down affects the health of the server. It delays only the
// requests that need it, until the timeout in its configuration.
func TestKMSPlugins(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "kms-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "kms.sock")
	plugin := kms.NewBase64Plugin(t, socket)
	file := encryptionConfiguration(t, filepath.Join(dir, "encryption.yaml"), "secrets", fmt.Sprintf("kms: {apiVersion: v2, name: vault, endpoint: 'unix://%s', timeout: 1s}", socket), unencrypted)
	s := harness.StartOn(t, filepath.Join(dir, "data"), "--encryption-provider-config", file, "--encryption-provider-config-automatic-reload")
	h := s.HTTP(t, nil)
	h.Must(http.StatusCreated, "POST", secrets, marked("Secret", "v1", "kept", "never-in-clear", ""))
	if found := holding(t, "never-in-clear", s.DataDir); len(found) > 0 {
		t.Errorf("in clear in %q", found)
	}
	h.Get("/readyz/kms-providers")
	h.Must(http.StatusNotFound, "GET", "/livez/kms-providers", "")
	s.Stop(t)
	plugin.CleanUp()
	dead := func(why string) {
		t.Helper()
		s.Restart(t)
		h := s.HTTP(t, nil)
		for _, path := range []string{secrets + "/kept", secrets} {
			if r := h.Do("GET", path, ""); r.Code != http.StatusInternalServerError || !strings.Contains(string(r.Raw), "vault") {
				t.Errorf("%s: %s: %d %s", why, path, r.Code, r.Raw)
			}
		}
		h.Must(http.StatusInternalServerError, "POST", secrets, marked("Secret", "v1", "new", "never-in-clear", ""))
		h.Must(http.StatusInternalServerError, "GET", "/readyz/kms-providers", "")
		create(t, s, http.StatusCreated, fmt.Sprintf(configMaps, "default"), named(why))
		h.Get(fmt.Sprintf(configMaps, "default"))
		h.Get("/livez")
		s.Stop(t)
	}
	for _, why := range speed.Some(t, 1, []string{"dead", "hangs"}) {
		if why == "dead" {
			dead(why)
			continue
		}
		hanging, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		dead(why)
		hanging.Close()
	}
	if !speed.IsLong() {
		return
	}
	kms.NewBase64Plugin(t, socket)
	s.Restart(t)
	s.HTTP(t, nil).Get(secrets + "/kept")
	s.HTTP(t, nil).Get("/readyz/kms-providers")
}
