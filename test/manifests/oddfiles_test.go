package manifests

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// pipe creates a named pipe without a writer.
func pipe(t *testing.T, path string) string {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestManifestsNextToOddFiles verifies S21.4a: irregular or very large files neither stop reloads nor prevent
// the server's shutdown.
func TestManifestsNextToOddFiles(t *testing.T) {
	t.Parallel()
	d := newManifestDirs(t)
	dir := d.ValidatingPolicies
	deny := func(message string) string {
		return staticPolicy("reload", ruleFor("", "configmaps"), "false", message)
	}
	put(t, dir, "a.yaml", deny("one"))
	s := harness.StartTest(t, "--admission-control-config-file", d.Config)
	h := s.HTTP(t, nil)
	await := func(message string) {
		t.Helper()
		harness.Eventually(t, fmt.Sprintf("requests are judged by %q", message), func() error {
			if got := h.Do("POST", configMaps("default")+"?dryRun=All", configMap("a")).Text("message"); !strings.HasSuffix(got, ": "+message) {
				return fmt.Errorf("judged by %q", got)
			}
			return nil
		})
	}
	failures := func() float64 {
		return h.Metrics().Value(reloads, `status="failure"`, `plugin="ValidatingAdmissionPolicy"`)
	}
	// refused waits until a file is rejected with an error that contains words, and the metric counts the
	// failure.
	refused := func(before float64, words string) {
		t.Helper()
		harness.Eventually(t, words+" is logged and counted", func() error {
			if !strings.Contains(s.Log(), words) || failures() <= before {
				return fmt.Errorf("%v failures, %v before; the log:\n%s", failures(), before, s.Log())
			}
			return nil
		})
	}
	await("one")
	for i, odd := range speed.Some(t, 2, []struct {
		name, words string
		make        func(path string)
	}{
		{"pipe", "is a named pipe", func(path string) { pipe(t, path) }},
		{"socket", "is a socket", func(path string) {
			// The path of a socket has a length limit.
			short, err := os.MkdirTemp("", "s")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(short) })
			l, err := net.Listen("unix", filepath.Join(short, "s"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			if err := os.Rename(filepath.Join(short, "s"), path); err != nil {
				t.Skip(err)
			}
		}},
		{"device", "is a link to a device", func(path string) {
			if err := os.Symlink("/dev/zero", path); err != nil {
				t.Fatal(err)
			}
		}},
		{"huge", "has more than 16 MiB", func(path string) {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, 1<<35); err != nil {
				t.Skip(err)
			}
		}},
	}) {
		t.Run(odd.name, func(t *testing.T) {
			before := failures()
			path := filepath.Join(dir, odd.name+".yaml")
			odd.make(path)
			refused(before, odd.words)
			put(t, dir, "a.yaml", deny(odd.name))
			await(odd.name)
			// A loaded file may be replaced by such a file: its registrations stay active.
			if i > 0 {
				return
			}
			before = failures()
			if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
				t.Fatal(err)
			}
			pipe(t, filepath.Join(dir, "a.yaml"))
			refused(before, "a.yaml")
			put(t, dir, "b.yaml", strings.ReplaceAll(deny("never"), "reload.", "other."))
			await(odd.name)
			if err := os.Remove(filepath.Join(dir, "b.yaml")); err != nil {
				t.Fatal(err)
			}
			put(t, dir, "a.yaml", deny("again"))
			await("again")
		})
	}
	// An invalid file causes a short error, whatever its content.
	before := failures()
	put(t, dir, "long.yaml", "apiVersion: admissionregistration.k8s.io/v1\nkind: "+strings.Repeat("x", 4<<20)+"\n")
	refused(before, "long.yaml")
	for line := range strings.Lines(s.Log()) {
		if len(line) > 16<<10 {
			t.Errorf("a line of the log has %d bytes: %.200s", len(line), line)
		}
	}
	// The cleanup ends the server with SIGTERM while the directory contains all of these files.
}

// TestOddFilesStopTheStart verifies that every flag for a file rejects files on which the server would block,
// immediately and with a one-sentence error.
func TestOddFilesStopTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	odd := pipe(t, filepath.Join(dir, "pipe"))
	words := notRegular
	for _, flags := range speed.Some(t, 3, [][]string{
		{"--tls-cert-file", odd, "--tls-private-key-file", odd}, {"--client-ca-file", odd}, {"--token-auth-file", odd},
		{"--requestheader-client-ca-file", odd}, {"--proxy-client-cert-file", odd, "--proxy-client-key-file", odd},
		{"--admission-control-config-file", odd}, {"--tracing-config-file", odd},
		{"--audit-policy-file", odd, "--audit-log-path", filepath.Join(dir, "audit.log")}, {"--audit-webhook-config-file", odd},
		{"--etcd-servers", "https://127.0.0.1:1", "--etcd-cafile", odd},
		{"--admission-control-config-file", writeFile(t, filepath.Join(dir, "path.yaml"), "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{name: PodSecurity, path: "+odd+"}]\n")},
		{"--admission-control-config-file", writeFile(t, filepath.Join(dir, "kubeconfig.yaml"), "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{name: MutatingAdmissionWebhook, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: "+odd+"}}]\n")},
	}) {
		t.Run(flags[0]+" "+filepath.Base(flags[1]), func(t *testing.T) {
			t.Parallel()
			r := harness.Run(t, append([]string{"serve", "--data-dir", t.TempDir(), "--secure-port", "0"}, flags...)...)
			if r.Code == 0 || !strings.Contains(r.Err, words) || strings.Contains(r.Err, "%!") {
				t.Errorf("%+v", r)
			}
		})
	}
	t.Run("manifests", func(t *testing.T) {
		t.Parallel()
		d := newManifestDirs(t)
		file := pipe(t, filepath.Join(d.ValidatingPolicies, "a.yaml"))
		r := harness.Run(t, "serve", "--data-dir", t.TempDir(), "--secure-port", "0", "--admission-control-config-file", d.Config)
		if r.Code == 0 || !strings.Contains(r.Err, file) || !strings.Contains(r.Err, words) {
			t.Errorf("%+v", r)
		}
	})
}

// TestCertificatesThatBecomeOddFiles verifies that certificate files replaced by a pipe or a device are not
// read. The last certificates stay in use until the path is a regular file again.
func TestCertificatesThatBecomeOddFiles(t *testing.T) {
	t.Parallel()
	dir, authority := t.TempDir(), harness.NewAuthority(t, "odd")
	at := func(name string) string { return filepath.Join(dir, name) }
	put := func(name string, data []byte) {
		t.Helper()
		if err := os.Rename(writeFile(t, at("next"), string(data)), at(name)); err != nil {
			t.Fatal(err)
		}
	}
	pair := func() {
		cert, key := authority.Pair(t, "127.0.0.1")
		put("tls.key", key)
		put("tls.crt", cert)
	}
	pair()
	put("ca.crt", authority.Bundle)
	put("front.crt", authority.Bundle)
	s := harness.Start(t, "--tls-cert-file", at("tls.crt"), "--tls-private-key-file", at("tls.key"),
		"--client-ca-file", at("ca.crt"), "--requestheader-client-ca-file", at("front.crt"))
	serial := func() string {
		t.Helper()
		conn, err := tls.Dial("tcp", strings.TrimPrefix(s.URL, "https://"), &tls.Config{RootCAs: authority.Pool()})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	first := serial()
	for _, name := range []string{"tls.crt", "tls.key", "ca.crt", "front.crt"} {
		for _, odd := range []struct{ words, path string }{
			{at(name) + ": " + notRegular, pipe(t, at("pipe"))},
			{at(name) + ": is a link to a device", "/dev/zero"},
		} {
			if odd.path == "/dev/zero" {
				odd.path = at("zero")
				if err := os.Symlink("/dev/zero", odd.path); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Rename(odd.path, at(name)); err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, odd.words, func() error {
				if !strings.Contains(s.Log(), odd.words) {
					return errors.New("it is not in the log")
				}
				return nil
			})
			if serial() != first {
				t.Error("another certificate is in use")
			}
		}
		if name == "ca.crt" || name == "front.crt" {
			put(name, authority.Bundle)
		}
	}
	pair()
	harness.Eventually(t, "the new certificate", func() error {
		if serial() == first {
			return errors.New("the server has the one before")
		}
		return nil
	})
}

const notRegular = "is a named pipe: only regular files are read"

// TestCommandsRefuseOddFiles verifies that commands neither block on a file nor read an endless one.
func TestCommandsRefuseOddFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	odd := pipe(t, filepath.Join(dir, "pipe.yaml"))
	kubeconfig := writeFile(t, filepath.Join(dir, "kubeconfig"), `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
 clusters: [{name: a, cluster: {server: "https://127.0.0.1:1", certificate-authority: `+odd+`}}], users: [{name: a}]}`)
	below := filepath.Join(dir, "below")
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	pipe(t, filepath.Join(below, "pipe.yaml"))
	for _, args := range speed.Some(t, 3, [][]string{
		{"lint", odd}, {"lint", below}, {"lint", "--kubeconfig", odd}, {"lint", "--kubeconfig", kubeconfig},
		{"check", odd}, {"check", below}, {"check", "--snapshot", odd, kubeconfig}, {"check", "--from-cluster", odd, kubeconfig}, {"check", "--from-cluster", kubeconfig, kubeconfig},
		{"explain", "-f", odd, "--kubeconfig", kubeconfig}, {"explain", "-f", odd, "--registrations", below}, {"explain", "pod/a", "--kubeconfig", odd},
		{"snapshot", "-o", "-", "--kubeconfig", odd}, {"trace", "--kubeconfig", odd}, {"initializers", "list", "--kubeconfig", odd}, {"wait-in-force", "validatingadmissionpolicy/a", "--kubeconfig", odd},
	}) {
		t.Run(strings.ReplaceAll(strings.Join(args, " "), dir+"/", ""), func(t *testing.T) {
			t.Parallel()
			r := harness.Run(t, args...)
			if said := r.Out + r.Err; r.Code == 0 || !strings.Contains(said, "is a named pipe: only") {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestOutputsLeaveDevicesAndLinks verifies that commands write through devices and links and do not replace
// them. The server's data directory is open to others: they could replace the keys, which the server logs.
func TestOutputsLeaveDevicesAndLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Symlink(os.DevNull, at("null")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("kept", at("link")); err != nil {
		t.Fatal(err)
	}
	writeFile(t, at("kept"), "before")
	data := openDirectory(t, 0o777)
	s := harness.StartOn(t, data, "--kubeconfig-out", at("link"))
	if !strings.Contains(s.Log(), "may write to the data directory "+data) {
		t.Errorf("mode 777: %s", s.Log())
	}
	for _, name := range []string{"null", "link"} {
		if r := harness.Run(t, "snapshot", "--kubeconfig", s.Kubeconfig, "-o", at(name)); r.Code != 0 {
			t.Errorf("%+v", r)
		}
		if info, err := os.Lstat(at(name)); err != nil || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s is no longer a link: %v, %v", name, info.Mode(), err)
		}
	}
	if data, err := os.ReadFile(at("kept")); err != nil || !strings.Contains(string(data), "ClusterSnapshot") {
		t.Errorf("behind the link is %.40q, %v", data, err)
	}
	if r := s.HTTP(t, nil).Do("GET", "/readyz", ""); r.Code != http.StatusOK {
		t.Errorf("%d %s", r.Code, r.Raw)
	}
}

// TestAnotherDataDirectoryIsNotSaid: others can read the data directory, and cannot write to it.
func TestAnotherDataDirectoryIsNotSaid(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	s := harness.StartOn(t, openDirectory(t, 0o755))
	if strings.Contains(s.Log(), "may write to the data directory") {
		t.Errorf("mode 755: %s", s.Log())
	}
}

// openDirectory creates a directory with the given mode.
func openDirectory(t *testing.T, mode os.FileMode) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	return dir
}
