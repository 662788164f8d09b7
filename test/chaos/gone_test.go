package chaos

import (
	"crypto/tls"
	"encoding/base64"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// comer is a kind of temporary object: it is created, used and deleted.
type comer struct {
	name string
	// make creates object n of round i; use uses it and returns when that has succeeded; drop deletes it.
	make, use, drop func(i, n int)
}

var goneCount = flag.Int("gone", 12, "how many of each kind of thing come and go in a round of TestWhatIsGoneLeavesNothing")

// goneAtOnce is the number of objects used at the same time.
const goneAtOnce = 12

// S22.24: kinds, namespaces, aggregated groups, webhooks and policies with params that were created, used and
// deleted leave no goroutine, no watch and no series of metrics behind. -long runs more rounds, and -gone
// uses more objects of each kind.
func TestWhatIsGoneLeavesNothing(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	s := harness.Start(t, "--controllers", "*")
	admin := s.HTTP(t, nil)
	comers := append(kindsThatGo(t, admin), registrationsThatGo(t, admin)...)
	comers = append(comers, groupsThatGo(t, admin))
	round := func(i int) {
		for _, c := range comers {
			for n := range *goneCount {
				c.make(i, n)
			}
		}
		var using sync.WaitGroup
		for first := range goneAtOnce {
			using.Go(func() {
				for n := first; n < *goneCount && t.Context().Err() == nil; n += goneAtOnce {
					for _, c := range comers {
						c.use(i, n)
					}
				}
			})
		}
		using.Wait()
		for _, c := range slices.Backward(comers) {
			for n := range *goneCount {
				c.drop(i, n)
			}
		}
	}
	// The first round starts long-lived goroutines and watches. Wait until the measurements are stable.
	round(0)
	before := measureGone(t, admin)
	for quiet := 0; quiet < 8; time.Sleep(2 * time.Second) {
		now := measureGone(t, admin)
		if quiet++; now.goroutines < before.goroutines-5 || now.goroutines > before.goroutines+5 || now.named > 0 {
			quiet = 0
		}
		before = now
		if t.Context().Err() != nil {
			return
		}
	}
	rounds(t, 1, func(i int) {
		round(i + 1)
		most := measureGone(t, admin)
		var now remains
		for end := time.Now().Add(3 * time.Minute); ; time.Sleep(time.Second) {
			if now = measureGone(t, admin); now.like(before) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%v are left; %v before, %v in between; series:\n%s", now, before, most, strings.Join(now.lines, ""))
			}
		}
		t.Logf("round %d: %v before, %v with %d of each, %v after", i+1, before, most, *goneCount, now)
	})
}

// remains are the resources that a server uses.
type remains struct {
	goroutines, watches float64
	// live is the live heap in MiB. series counts all series of metrics, and named the series with names of
	// deleted objects.
	live          float64
	series, named int
	lines         []string
}

func (r remains) String() string {
	return fmt.Sprintf("%v goroutines, %v watches, %.1f MiB alive, %d series of which %d name what went", r.goroutines, r.watches, r.live, r.series, r.named)
}

// like reports whether r is no more than before, within a tolerance. A leaked kind adds at least five
// goroutines.
func (r remains) like(before remains) bool {
	return r.goroutines <= before.goroutines+36 && r.watches <= before.watches+3 && r.named == 0
}

// measureGone measures after a garbage collection: the heap metric is the live heap at the last collection,
// which is higher during a burst of work.
func measureGone(t *testing.T, admin *harness.HTTP) remains {
	t.Helper()
	admin.Get("/debug/pprof/heap?gc=1")
	m := admin.Metrics()
	r := remains{goroutines: m.Single("go_goroutines"), watches: m.Value("apiserver_longrunning_requests"), live: m.Single("go_gc_heap_live_bytes") / mib}
	for line := range strings.Lines(string(m)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		r.series++
		if strings.Contains(line, "gone.example.com") {
			r.named++
			if len(r.lines) < 40 {
				r.lines = append(r.lines, line)
			}
		}
	}
	return r
}

// eventually repeats a request until the response has the wanted code.
func eventually(t *testing.T, admin *harness.HTTP, want int, method, path, body string) {
	t.Helper()
	harness.Eventually(t, method+" "+path, func() error {
		if code, err := admin.Try(t.Context(), method, path, body); code != want {
			return fmt.Errorf("%d, %v", code, err)
		}
		return nil
	})
}

func goneGroup(i, n int) string     { return fmt.Sprintf("g%d-%d.gone.example.com", i, n) }
func goneNamespace(i, n int) string { return fmt.Sprintf("gone-%d-%d", i, n) }

// kindsThatGo are namespaces, and custom kinds whose objects are garbage collected.
func kindsThatGo(t *testing.T, admin *harness.HTTP) []comer {
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	return []comer{
		{"namespaces", func(i, n int) {
			admin.Must(http.StatusCreated, "POST", "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, goneNamespace(i, n)))
		}, func(i, n int) {
			admin.Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+goneNamespace(i, n)+"/resourcequotas", `{"metadata":{"name":"q"},"spec":{"hard":{"count/configmaps":"100"}}}`)
		}, func(i, n int) {
			admin.Must(http.StatusOK, "DELETE", "/api/v1/namespaces/"+goneNamespace(i, n), "")
		}},
		{"definitions", func(i, n int) {
			admin.Must(http.StatusCreated, "POST", definitions, fmt.Sprintf(`{"metadata":{"name":"widgets.%[1]s"},"spec":{"group":%[1]q,"scope":"Namespaced",
				"names":{"plural":"widgets","singular":"widget","kind":"Widget"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, goneGroup(i, n)))
		}, func(i, n int) {
			group, in := goneGroup(i, n), "/namespaces/"+goneNamespace(i, n)
			owner := admin.Must(http.StatusCreated, "POST", "/api/v1"+in+"/configmaps", `{"metadata":{"name":"owner"}}`)
			path := "/apis/" + group + "/v1" + in + "/widgets"
			eventually(t, admin, http.StatusCreated, "POST", path, fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":"param"}}`, group))
			admin.Must(http.StatusCreated, "POST", path, fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":"owned","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]}}`,
				group, owner.Text("metadata", "uid")))
			admin.Must(http.StatusOK, "DELETE", "/api/v1"+in+"/configmaps/owner", "")
			// The garbage collector watches the kind.
			eventually(t, admin, http.StatusNotFound, "GET", path+"/owned", "")
		}, func(i, n int) {
			admin.Must(http.StatusOK, "DELETE", definitions+"/widgets."+goneGroup(i, n), "")
		}},
	}
}

// registrationsThatGo are webhooks, policies with params of the custom kinds, and bindings.
func registrationsThatGo(t *testing.T, admin *harness.HTTP) []comer {
	const registrations = "/apis/admissionregistration.k8s.io/v1/"
	hook := harness.NewWebhookServer(t, nil).Hook("/allow", harness.Allow)
	admin.Must(http.StatusCreated, "POST", registrations+"validatingadmissionpolicies", `{"metadata":{"name":"stays.example.com"},"spec":{
		"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["limitranges"]}]},
		"validations":[{"expression":"object.metadata.name != 'refused'"}]}}`)
	return []comer{
		{"webhooks", func(i, n int) {
			admin.Must(http.StatusCreated, "POST", registrations+"validatingwebhookconfigurations", fmt.Sprintf(`{"metadata":{"name":"hook-%[1]d-%[2]d"},"webhooks":[{"name":"h%[1]d-%[2]d.gone.example.com",
				"admissionReviewVersions":["v1"],"sideEffects":"None","clientConfig":{"url":%[3]q,"caBundle":%[4]q},"matchConditions":[{"name":"always","expression":"object.metadata.name == 'refused' || true"}],
				"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"gone-%[1]d-%[2]d"}},"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["secrets"]}]}]}`,
				i, n, hook.URL(), hook.CABundle()))
		}, func(i, n int) {
			admin.Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+goneNamespace(i, n)+"/secrets", `{"metadata":{"name":"judged"}}`)
		}, func(i, n int) {
			admin.Must(http.StatusOK, "DELETE", fmt.Sprintf("%svalidatingwebhookconfigurations/hook-%d-%d", registrations, i, n), "")
		}},
		{"policies", func(i, n int) {
			name := fmt.Sprintf("p%d-%d.gone.example.com", i, n)
			admin.Must(http.StatusCreated, "POST", registrations+"validatingadmissionpolicies", fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"paramKind":{"apiVersion":"%s/v1","kind":"Widget"},
				"matchConstraints":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":%q}},"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["serviceaccounts"]}]},
				"validations":[{"expression":"params.metadata.name == 'param' && object.metadata.name != 'refused'"}]}}`, name, goneGroup(i, n), goneNamespace(i, n)))
			admin.Must(http.StatusCreated, "POST", registrations+"validatingadmissionpolicybindings", fmt.Sprintf(`{"metadata":{"name":%[1]q},"spec":{"policyName":%[1]q,"validationActions":["Deny"],
				"paramRef":{"name":"param","parameterNotFoundAction":"Allow"}}}`, name))
		}, func(i, n int) {
			path := "/api/v1/namespaces/" + goneNamespace(i, n) + "/serviceaccounts"
			eventually(t, admin, http.StatusUnprocessableEntity, "POST", path+"?dryRun=All", `{"metadata":{"name":"refused"}}`)
			admin.Must(http.StatusCreated, "POST", path, `{"metadata":{"name":"judged"}}`)
		}, func(i, n int) {
			name := fmt.Sprintf("p%d-%d.gone.example.com", i, n)
			admin.Must(http.StatusOK, "DELETE", registrations+"validatingadmissionpolicybindings/"+name, "")
			admin.Must(http.StatusOK, "DELETE", registrations+"validatingadmissionpolicies/"+name, "")
		}},
		{"bindings of a policy that stays", func(i, n int) {
			admin.Must(http.StatusCreated, "POST", registrations+"validatingadmissionpolicybindings", fmt.Sprintf(`{"metadata":{"name":"b%d-%d.gone.example.com"},"spec":{"policyName":"stays.example.com","validationActions":["Deny"],
				"matchResources":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":%q}}}}}`, i, n, goneNamespace(i, n)))
		}, func(i, n int) {
			path := "/api/v1/namespaces/" + goneNamespace(i, n) + "/limitranges"
			eventually(t, admin, http.StatusUnprocessableEntity, "POST", path+"?dryRun=All", `{"metadata":{"name":"refused"},"spec":{"limits":[]}}`)
			admin.Must(http.StatusCreated, "POST", path, `{"metadata":{"name":"judged"},"spec":{"limits":[]}}`)
		}, func(i, n int) {
			admin.Must(http.StatusOK, "DELETE", fmt.Sprintf("%svalidatingadmissionpolicybindings/b%d-%d.gone.example.com", registrations, i, n), "")
		}},
	}
}

// groupsThatGo are groups of one aggregated server, whose objects the garbage collector watches.
func groupsThatGo(t *testing.T, admin *harness.HTTP) comer {
	authority := harness.NewAuthority(t, "gone")
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
		if len(parts) < 3 || parts[0] != "apis" {
			http.NotFound(w, req)
			return
		}
		gv := parts[1] + "/" + parts[2]
		w.Header().Set("Content-Type", "application/json")
		switch {
		case len(parts) == 3:
			fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":%q,"resources":[{"name":"things","singularName":"thing","namespaced":true,"kind":"Thing","verbs":["create","delete","get","list","watch"]}]}`, gv)
		case req.URL.Query().Get("watch") != "":
			w.(http.Flusher).Flush()
			<-req.Context().Done()
		default:
			fmt.Fprintf(w, `{"kind":"ThingList","apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":[]}`, gv)
		}
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{authority.Serving(t, "gone.default.svc")}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	admin.Must(http.StatusCreated, "POST", "/api/v1/namespaces/default/services", `{"metadata":{"name":"gone"},"spec":{"type":"ExternalName","externalName":"localhost"}}`)
	const services = "/apis/apiregistration.k8s.io/v1/apiservices"
	group := func(i, n int) string { return fmt.Sprintf("a%d-%d.gone.example.com", i, n) }
	return comer{"aggregated groups", func(i, n int) {
		admin.Must(http.StatusCreated, "POST", services, fmt.Sprintf(`{"metadata":{"name":"v1.%[1]s"},"spec":{"group":%[1]q,"version":"v1","groupPriorityMinimum":500,"versionPriority":10,"caBundle":%[2]q,
			"service":{"name":"gone","namespace":"default","port":%[3]d}}}`, group(i, n), base64.StdEncoding.EncodeToString(authority.Bundle), server.Listener.Addr().(*net.TCPAddr).Port))
	}, func(i, n int) {
		eventually(t, admin, http.StatusOK, "GET", "/apis/"+group(i, n)+"/v1/things", "")
	}, func(i, n int) {
		admin.Must(http.StatusOK, "DELETE", services+"/v1."+group(i, n), "")
	}}
}
