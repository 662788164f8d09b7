package encryption

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

var rates = flag.Bool("rates", false, "measure how fast Secrets are created and listed, with and without encryption")

// stored is the number of Secrets that TestRates creates on each server, and lists.
const stored = 1000

// TestRates logs the rates of both servers with one provider, secretbox, and without any, in alternating rounds, with
// the load of the machine.
func TestRates(t *testing.T) {
	if !*rates {
		t.Skip("needs a quiet machine: -rates")
	}
	binaries, err := peer.Build(t.Context(), "..", "")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "encryption.yaml")
	if err := os.WriteFile(file, []byte(configuration()), 0o600); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		for i, kind := range []peer.Kind{peer.KubeAPIServer, peer.GatehouseEmbedded} {
			for j, flags := range [][]string{nil, {"--encryption-provider-config=" + file}} {
				s, err := peer.Start(t.Context(), binaries, kind, filepath.Join(dir, fmt.Sprint(round, i, j)), flags...)
				if err != nil {
					t.Fatal(err)
				}
				created, listed := measure(t, s)
				load, err := os.ReadFile("/proc/loadavg")
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%s, encrypted %t: %.0f creates/s, a list in %s, load %s", kind, j == 1, created, listed.Round(100*time.Microsecond), strings.Fields(string(load))[0])
				if err := s.Stop(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// measure returns how many Secrets eight clients create per second, and the duration of a list of them.
func measure(t *testing.T, s *peer.Server) (created float64, listed time.Duration) {
	t.Helper()
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	secrets := client.CoreV1().Secrets("default")
	const clients, lists = 8, 20
	begin := time.Now()
	var creating sync.WaitGroup
	for first := range clients {
		creating.Go(func() {
			for i := first; i < stored; i += clients {
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s-%d", i)}, StringData: map[string]string{"a": strings.Repeat("x", 40)}}
				if _, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	creating.Wait()
	created = stored / time.Since(begin).Seconds()
	begin = time.Now()
	for range lists {
		if list, err := secrets.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) < stored {
			t.Errorf("%v", err)
		}
	}
	return created, time.Since(begin) / lists
}
