package chaos

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

var soakFor = flag.Duration("soak", 30*time.Second, "how long TestSoak takes; the server is killed every 30 to 60 s, and once at least")

// soak runs all kinds of work on one server that is killed repeatedly.
type soak struct {
	*testing.T
	h      *harness.HTTP
	ledger *ledger
	hook   *harness.Hook

	turn                                                   atomic.Int64
	paramChanges, late, lists, over, hung, hangs, families atomic.Int64
}

// historyStays is the maximal time that the history of a write stays in etcd, plus a margin.
const historyStays = 13 * time.Minute

const (
	soakNamespaces = "/api/v1/namespaces"
	soakHooks      = "/apis/admissionregistration.k8s.io/v1/"
	soakKinds      = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	soakLimit      = 5
)

// try sends a request, and reports whether the response has the wanted code.
func (k *soak) try(ctx context.Context, want int, method, path, body string, headers ...string) bool {
	code, err := k.h.Try(ctx, method, path, body, headers...)
	return err == nil && code == want
}

// pause waits before the next request to a server that is down.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
}

// prepare creates the objects that the work needs.
func (k *soak) prepare() {
	for _, name := range []string{"params", "stored", "quota", "hooks", "families"} {
		k.h.Must(http.StatusCreated, "POST", soakNamespaces, fmt.Sprintf(`{"metadata":{"name":"soak-%s"}}`, name))
	}
	k.h.Must(http.StatusCreated, "POST", soakNamespaces+"/soak-quota/resourcequotas", fmt.Sprintf(`{"metadata":{"name":"q"},"spec":{"hard":{"count/secrets":"%d"}}}`, soakLimit))
	harness.Eventually(k, "the quota is counted", func() error {
		if got := k.h.Get(soakNamespaces+"/soak-quota/resourcequotas/q").Text("status", "used", "count/secrets"); got != "0" {
			return fmt.Errorf("%q are used", got)
		}
		return nil
	})
	k.h.Must(http.StatusCreated, "POST", soakHooks+"validatingwebhookconfigurations", fmt.Sprintf(`{"metadata":{"name":"soak"},"webhooks":[{"name":"hang.soak.example.com","admissionReviewVersions":["v1"],"sideEffects":"None",
		"timeoutSeconds":1,"failurePolicy":"Ignore","clientConfig":{"url":%q,"caBundle":%q},"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"soak-hooks"}},
		"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["secrets"]}]}]}`, k.hook.URL(), k.hook.CABundle()))
	k.h.Must(http.StatusCreated, "POST", soakNamespaces+"/soak-stored/configmaps", `{"metadata":{"name":"param"},"data":{"v":"0"}}`)
	k.h.Must(http.StatusCreated, "POST", soakHooks+"validatingadmissionpolicies", `{"metadata":{"name":"soak"},"spec":{"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},
		"matchConstraints":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"soak-params"}},"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},
		"validations":[{"expression":"object.data.v == params.data.v"}]}}`)
	k.h.Must(http.StatusCreated, "POST", soakHooks+"validatingadmissionpolicybindings", `{"metadata":{"name":"soak"},"spec":{"policyName":"soak","validationActions":["Deny"],
		"paramRef":{"name":"param","namespace":"soak-stored","parameterNotFoundAction":"Deny"}}}`)
	eventually(k.T, k.h, http.StatusUnprocessableEntity, "POST", soakNamespaces+"/soak-params/configmaps?dryRun=All", `{"metadata":{"name":"a"},"data":{"v":"other"}}`)
}

// changeParams changes a param and verifies that the next requests are evaluated with the new value.
func (k *soak) changeParams(ctx context.Context) {
	const judged = soakNamespaces + "/soak-params/configmaps?dryRun=All"
	before := "0"
	for ctx.Err() == nil {
		v := fmt.Sprint(k.turn.Add(1))
		if !k.try(ctx, http.StatusOK, "PUT", soakNamespaces+"/soak-stored/configmaps/param", fmt.Sprintf(`{"metadata":{"name":"param"},"data":{"v":%q}}`, v)) {
			pause(ctx)
			continue
		}
		k.paramChanges.Add(1)
		for value, want := range map[string]int{v: http.StatusCreated, before: http.StatusUnprocessableEntity} {
			code, err := k.h.Try(ctx, "POST", judged, fmt.Sprintf(`{"metadata":{"generateName":"a-"},"data":{"v":%q}}`, value))
			if err == nil && code != want && (code == http.StatusCreated || code == http.StatusUnprocessableEntity) {
				k.late.Add(1)
				k.Errorf("param %s was answered; an object with %s got %d, want %d", v, value, code, want)
			}
		}
		before = v
	}
}

// fillQuota creates and deletes secrets under a quota.
func (k *soak) fillQuota(ctx context.Context) {
	const secrets = soakNamespaces + "/soak-quota/secrets"
	for ctx.Err() == nil {
		k.try(ctx, http.StatusCreated, "POST", secrets, fmt.Sprintf(`{"metadata":{"name":"s-%d"}}`, k.turn.Add(1)))
		names, ok := k.names(ctx, secrets)
		if !ok {
			pause(ctx)
			continue
		}
		if k.lists.Add(1); len(names) > soakLimit {
			k.over.Add(1)
			k.Errorf("%d objects under a quota of %d", len(names), soakLimit)
		}
		if len(names) > 0 && rand.N(2) == 0 {
			k.try(ctx, http.StatusOK, "DELETE", secrets+"/"+names[rand.N(len(names))], "")
		}
	}
}

// names lists the names at a path, and reports whether the list succeeded.
func (k *soak) names(ctx context.Context, path string) (names []string, ok bool) {
	code, text, err := k.h.TryRead(ctx, path)
	var list struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	if err != nil || code != http.StatusOK || json.Unmarshal(text, &list) != nil {
		return nil, false
	}
	for _, item := range list.Items {
		names = append(names, item.Metadata.Name)
	}
	return names, true
}

// hang writes objects whose webhook hangs without failing the request.
func (k *soak) hang(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		code, err := k.h.Try(ctx, "POST", soakNamespaces+"/soak-hooks/secrets?dryRun=All", `{"metadata":{"generateName":"a-"}}`)
		if err != nil || code >= 500 || code == http.StatusTooManyRequests {
			pause(ctx)
			continue
		}
		if k.hangs.Add(1); code != http.StatusCreated || time.Since(began) > 20*time.Second {
			k.hung.Add(1)
			k.Errorf("a hook that hangs and is ignored: %d after %s", code, time.Since(began))
		}
	}
}

// family creates an owner with a dependent, and deletes the owner.
func (k *soak) family(ctx context.Context) {
	const maps = soakNamespaces + "/soak-families/configmaps"
	for ctx.Err() == nil {
		name := fmt.Sprintf("owner-%d", k.turn.Add(1))
		if !k.try(ctx, http.StatusCreated, "POST", maps, fmt.Sprintf(`{"metadata":{"name":%q}}`, name)) {
			pause(ctx)
			continue
		}
		code, text, err := k.h.TryRead(ctx, maps+"/"+name)
		var owner struct{ Metadata struct{ UID string } }
		if err == nil && code == http.StatusOK && json.Unmarshal(text, &owner) == nil {
			k.try(ctx, http.StatusCreated, "POST", maps, fmt.Sprintf(`{"metadata":{"name":"of-%[1]s","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":%[1]q,"uid":%[2]q}]}}`, name, owner.Metadata.UID))
		}
		for ctx.Err() == nil && !k.gone(ctx, maps+"/"+name) {
			pause(ctx)
		}
		k.families.Add(1)
	}
}

// gone deletes an object, and reports whether it no longer exists.
func (k *soak) gone(ctx context.Context, path string) bool {
	code, err := k.h.Try(ctx, "DELETE", path, "")
	return err == nil && (code == http.StatusOK || code == http.StatusAccepted || code == http.StatusNotFound)
}

// comeAndGo creates, uses and deletes namespaces and kinds.
func (k *soak) comeAndGo(ctx context.Context) {
	for ctx.Err() == nil {
		n := k.turn.Add(1)
		name, group := fmt.Sprintf("soak-gone-%d", n), fmt.Sprintf("s%d.gone.example.com", n)
		k.try(ctx, http.StatusCreated, "POST", soakNamespaces, fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		k.try(ctx, http.StatusCreated, "POST", soakKinds, fmt.Sprintf(`{"metadata":{"name":"widgets.%[1]s"},"spec":{"group":%[1]q,"scope":"Namespaced",
			"names":{"plural":"widgets","singular":"widget","kind":"Widget"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, group))
		widgets := "/apis/" + group + "/v1/namespaces/" + name + "/widgets"
		for range 20 {
			if k.try(ctx, http.StatusCreated, "POST", widgets, fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":"a"}}`, group)) {
				break
			}
			pause(ctx)
		}
		pause(ctx)
		k.gone(ctx, soakKinds+"/widgets."+group)
		k.gone(ctx, soakNamespaces+"/"+name)
		pause(ctx)
	}
}

// watch opens short watches of all config maps.
func (k *soak) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if !k.try(ctx, http.StatusOK, "GET", "/api/v1/configmaps?watch=1&timeoutSeconds=2", "") {
			pause(ctx)
		}
	}
}

// work runs all kinds of work at once until ctx ends.
func (k *soak) work(ctx context.Context, s *harness.Server, id string) {
	var working sync.WaitGroup
	for w := range 3 {
		// A starting server may reject requests; a rejected write changes nothing.
		working.Go(func() { k.ledger.write(ctx, k.T, s, fmt.Sprintf("%s-w%d", id, w), func(int) { pause(ctx) }) })
		working.Go(func() { k.fillQuota(ctx) })
		working.Go(func() { k.hang(ctx) })
		working.Go(func() { k.watch(ctx) })
	}
	working.Go(func() { k.changeParams(ctx) })
	working.Go(func() { k.family(ctx) })
	working.Go(func() { k.comeAndGo(ctx) })
	working.Wait()
}

// tidy deletes objects that survived because of a kill, and waits until all are gone.
func (k *soak) tidy() {
	harness.Eventually(k, "what went is gone, and what nobody owns any more", func() error {
		var left []string
		for path, mark := range map[string]string{soakKinds: "gone.example.com", soakNamespaces: "soak-gone-", soakNamespaces + "/soak-families/configmaps": "owner-"} {
			names, _ := k.names(k.Context(), path)
			for _, name := range names {
				if !strings.Contains(name, mark) {
					continue
				}
				left = append(left, name)
				if !strings.HasPrefix(name, "of-") {
					k.gone(k.Context(), path+"/"+name)
				}
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("%d are left: %.200q", len(left), left)
		}
		return nil
	})
}

// All work at once, with kills: no acknowledged write is lost, no decision is late or uses an outdated param,
// no quota is exceeded, and in the end the server uses the same resources as in the beginning.
//
//	go test ./test/chaos -v -run TestSoak -soak 10m -timeout 1h
func TestSoak(t *testing.T) {
	speed.Long(t)
	s := harness.Start(t, "--controllers", "*")
	k := &soak{T: t, h: s.HTTP(t, nil), ledger: newLedger(), hook: harness.NewWebhookServer(t, nil).Hook("/hang", harness.Hang)}
	k.prepare()
	run := func(id string, d time.Duration, kill func(ctx context.Context)) {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		var working sync.WaitGroup
		working.Go(func() { k.work(ctx, s, id) })
		kill(ctx)
		working.Wait()
		k.tidy()
	}
	// The first run starts long-lived goroutines.
	run("first", 5*time.Second, func(context.Context) {})
	before := settled(t, k.h)
	s.Kill(t)
	s.Restart(t)
	fresh := settled(t, k.h)

	kills := 0
	end := time.Now().Add(*soakFor)
	run("soak", *soakFor, func(ctx context.Context) {
		for wait := min(30*time.Second, *soakFor/3); time.Until(end) > wait && !t.Failed(); wait = time.Duration(30+rand.N(31)) * time.Second {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			s.Kill(t)
			s.Restart(t)
			kills++
		}
	})
	k.ledger.check(t, s)
	harness.Eventually(t, "the use of the quota is what is there", func() error {
		names, _ := k.names(t.Context(), soakNamespaces+"/soak-quota/secrets")
		if used := k.h.Get(soakNamespaces+"/soak-quota/resourcequotas/q").Text("status", "used", "count/secrets"); used != fmt.Sprint(len(names)) {
			return fmt.Errorf("%s are used, %d are there", used, len(names))
		}
		return nil
	})
	k.h.Must(http.StatusOK, "DELETE", configMaps, "")
	t.Logf("%d kills, %d acknowledged writes, %d params changed (%d late), %d lists (%d over the quota), %d requests with a hook that hangs (%d failed), %d families",
		kills, k.ledger.count(), k.paramChanges.Load(), k.late.Load(), k.lists.Load(), k.over.Load(), k.hangs.Load(), k.hung.Load(), k.families.Load())
	if kills == 0 || k.paramChanges.Load() == 0 || k.lists.Load() == 0 || k.hangs.Load() == 0 || k.families.Load() == 0 {
		t.Error("something did not work at all")
	}
	held := settled(t, k.h)
	if !held.like(before) {
		t.Errorf("%v in the end, %v before", held, before)
	}
	cut := held
	for until := time.Now().Add(historyStays); cut.live > before.live*1.1+4 && time.Now().Before(until); cut = measureGone(t, k.h) {
		time.Sleep(2 * time.Second)
	}
	// Watch caches keep the events of deleted objects until newer events replace them, each with the object;
	// a new process has none. The index of etcd contains deleted objects until compaction, which runs every
	// five minutes and covers everything older than five minutes.
	s.Kill(t)
	s.Restart(t)
	began := settled(t, k.h)
	now := began
	for until := time.Now().Add(historyStays); now.live > fresh.live*1.1+4; now = measureGone(t, k.h) {
		if time.Now().After(until) {
			t.Fatalf("a new process has %v in the end, and had %v before", now, fresh)
		}
		time.Sleep(2 * time.Second)
	}
	t.Logf("before: %v\nin the end, with the events of what was deleted: %v\nwithout the history of etcd: %v\na new process before: %v\nand in the end, with the history of etcd: %v\nwithout it: %v", before, held, cut, fresh, began, now)
}

// settled measures when the values are stable and the series of deleted objects are gone.
func settled(t *testing.T, h *harness.HTTP) remains {
	t.Helper()
	before := measureGone(t, h)
	for quiet := 0; quiet < 4 && t.Context().Err() == nil; time.Sleep(2 * time.Second) {
		now := measureGone(t, h)
		if quiet++; now.goroutines < before.goroutines-5 || now.goroutines > before.goroutines+5 || now.named > 0 {
			quiet = 0
		}
		before = now
	}
	return before
}
