package webhooks

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// BenchmarkIdle measures the CPU usage of an idle server with embedded etcd: with default flags, and with
// hourly reads of its registrations. The difference is the cost of the reads. Each is measured for a minute;
// the kernel's counters have a resolution of a hundredth of a second.
func BenchmarkIdle(b *testing.B) {
	for _, hooks := range []int{0, 2000} {
		b.Run(fmt.Sprintf("hooks=%d", hooks), func(b *testing.B) {
			const perConfiguration, settled, watched = 100, 20 * time.Second, time.Minute
			usual := harness.Start(b)
			never := harness.Start(b, "--admission-refresh-interval", "1h", "--admission-max-staleness", "2h")
			for _, s := range []*harness.Server{usual, never} {
				for i := range hooks / perConfiguration {
					var webhooks []any
					for k := range perConfiguration {
						w := everything("https://webhook.example.com/", "Ignore")
						w["name"] = fmt.Sprintf("w%d.example.com", k)
						w["rules"] = []any{rule("*", "/v1/nodes")}
						webhooks = append(webhooks, w)
					}
					s.HTTP(b, nil).Must(http.StatusCreated, "POST", registrationsPath("v1", validating), configuration(validating, fmt.Sprintf("c%d", i), webhooks...))
				}
			}
			cpu := func(s *harness.Server) float64 { return s.HTTP(b, nil).Metrics().Single("process_cpu_seconds_total") }
			for b.Loop() {
				// Let the work of the start and of new registrations finish.
				time.Sleep(settled)
				usualBefore, neverBefore, began := cpu(usual), cpu(never), time.Now()
				time.Sleep(watched)
				usualUsed, neverUsed, took := cpu(usual)-usualBefore, cpu(never)-neverBefore, time.Since(began).Seconds()
				b.ReportMetric(100*usualUsed/took, "%-of-a-core")
				b.ReportMetric(100*(usualUsed-neverUsed)/took, "%-for-reading-registrations")
			}
		})
	}
}

// BenchmarkConsistency measures the rate of config map creations with each --admission-consistency,
// alternately. The figures are medians; strict-% is the rate of strict as a percentage of bounded.
func BenchmarkConsistency(b *testing.B) {
	for _, etcd := range []string{"inside", "three members"} {
		b.Run("etcd="+etcd, func(b *testing.B) {
			var bounded, strict *harness.Server
			if etcd == "inside" {
				bounded, strict = harness.Start(b), harness.Start(b, "--admission-consistency", "strict")
			} else {
				c := harness.StartEtcdCluster(b, 3)
				var urls []string
				for _, m := range c.Members {
					urls = append(urls, "https://"+m.Address)
				}
				flags := append([]string{"--etcd-servers", strings.Join(urls, ",")}, c.Flags...)
				bounded, strict = harness.Start(b, flags...), harness.Start(b, append(flags, "--admission-consistency", "strict")...)
			}
			for _, clients := range []int{1, 16} {
				b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
					const rounds, period = 5, 2 * time.Second
					for b.Loop() {
						var rates [2][]float64
						var ratios []float64
						for range rounds {
							for i, s := range []*harness.Server{bounded, strict} {
								rates[i] = append(rates[i], createRate(b, s, configMaps("default"), someConfigMap, clients, period))
							}
							ratios = append(ratios, 100*rates[1][len(rates[1])-1]/rates[0][len(rates[0])-1])
						}
						b.ReportMetric(median(rates[0]), "bounded/s")
						b.ReportMetric(median(rates[1]), "strict/s")
						b.ReportMetric(median(ratios), "strict-%")
					}
				})
			}
		})
	}
}

// BenchmarkTraces measures the cost of traces: the rate of object creations and the server's CPU time per
// object, with and without traces, alternately. Most built-in admission plugins change pods. The figures are
// medians; rate-% and cpu-% are the figures with traces as a percentage of the figures without. On a machine
// with other load, use the CPU time.
func BenchmarkTraces(b *testing.B) {
	const pod = `{"metadata":{"generateName":"p-"},"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1m"}},"env":[{"name":"A","value":"b"}]}]}}`
	for _, c := range []struct {
		resource, object string
		webhooks         int
	}{
		{"configmaps", someConfigMap, 0},
		{"configmaps", someConfigMap, 1},
		{"pods", pod, 0},
		{"pods", pod, 1},
	} {
		b.Run(fmt.Sprintf("%s/webhooks=%d", c.resource, c.webhooks), func(b *testing.B) {
			servers := []*harness.Server{harness.Start(b), harness.Start(b, "--admission-trace-bytes", "0")}
			path := "/api/v1/namespaces/default/" + c.resource
			if c.webhooks > 0 {
				hook := harness.NewWebhookServer(b, nil).Hook("/label", harness.Patch(`[{"op":"add","path":"/metadata/labels","value":{"team":"red"}}]`))
				for _, s := range servers {
					w := everything(hook.URL(), "Fail")
					w["name"], w["rules"], w["clientConfig"] = "w.example.com", []any{rule("CREATE", "/v1/"+c.resource)}, hook.ClientConfig()
					s.HTTP(b, nil).Must(http.StatusCreated, "POST", registrationsPath("v1", mutating), configuration(mutating, "w", w))
				}
			}
			const clients, rounds, period = 4, 20, time.Second
			cpu := func(s *harness.Server) float64 { return s.HTTP(b, nil).Metrics().Single("process_cpu_seconds_total") }
			for b.Loop() {
				var rateRatios, cpuRatios []float64
				for round := range rounds {
					var rates, costs [2]float64
					for i := range servers {
						// Alternate the order.
						k := (i + round) % 2
						before := cpu(servers[k])
						rates[k] = createRate(b, servers[k], path, c.object, clients, period)
						costs[k] = (cpu(servers[k]) - before) / rates[k]
					}
					rateRatios, cpuRatios = append(rateRatios, 100*rates[0]/rates[1]), append(cpuRatios, 100*costs[0]/costs[1])
				}
				b.ReportMetric(median(rateRatios), "rate-%")
				b.ReportMetric(median(cpuRatios), "cpu-%")
			}
		})
	}
}

const someConfigMap = `{"metadata":{"generateName":"c-"}}`

// createRate returns the objects created per second by clients with separate connections.
func createRate(b *testing.B, s *harness.Server, path, object string, clients int, period time.Duration) float64 {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), period)
	defer cancel()
	var created atomic.Int64
	var group sync.WaitGroup
	began := time.Now()
	for range clients {
		config := rest.CopyConfig(s.Admin)
		// Clients with a function in their configuration do not share connections.
		config.Proxy = http.ProxyFromEnvironment
		h := s.HTTP(b, config)
		group.Go(func() {
			for ctx.Err() == nil {
				code, err := h.Try(b.Context(), "POST", path, object)
				if err != nil || code != http.StatusCreated {
					b.Errorf("%d, %v", code, err)
					return
				}
				created.Add(1)
			}
		})
	}
	group.Wait()
	return float64(created.Load()) / time.Since(began).Seconds()
}
