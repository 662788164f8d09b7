package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// sharing contains two pairs of servers. In each pair there is a kube-apiserver and a gatehouse. The two servers of a
// kind share an etcd: the newer one runs as its own release, the older one emulates an older release.
type sharing struct {
	newer, older *pair
	// etcds are the etcds of kube-apiserver and of gatehouse.
	etcds [2]string
}

// sharedCases contains additional kinds for this comparison.
const sharedCases = "cases/shared.yaml"

var (
	// judging are the groups whose objects affect other requests. Their objects are not kept.
	judging = []string{"admissionregistration.k8s.io", "flowcontrol.apiserver.k8s.io"}
	// asynchronous are the groups whose objects change, or are removed, some time after the answer.
	asynchronous = []string{"apiextensions.k8s.io", "apiregistration.k8s.io"}
)

// shared compares kube-apiserver with gatehouse when servers of two releases share an etcd. First, servers that
// emulate a release start on the data of newer servers, as after a downgrade. Then the servers of both releases take
// turns to write and read each object. The content of etcd is compared, too.
func (r *runner) shared(ctx context.Context, only *regexp.Regexp) (err error) {
	if r.tally.known, err = loadKnown(knownFile); err != nil {
		return err
	}
	all, err := loadKinds()
	if err != nil {
		return err
	}
	more, err := documents[kind](sharedCases)
	if err != nil {
		return err
	}
	kinds := slices.DeleteFunc(append(all, more...), func(k kind) bool {
		return !only.MatchString(k.version().String()+"/"+k.Resource) || slices.Contains(asynchronous, k.version().Group)
	})
	s := &sharing{newer: &pair{}, older: &pair{}}
	defer func() { err = errors.Join(err, s.older.stop(), s.newer.stop()) }()
	var servers [2]*peer.Server
	for i, kind := range []peer.Kind{peer.KubeAPIServer, peer.Gatehouse} {
		var flags []string
		if kind == peer.Gatehouse {
			// kube-apiserver runs without controllers.
			flags = append(flags, "--controllers=-*")
		}
		if servers[i], err = peer.Start(ctx, r.lab.binaries, kind, filepath.Join(r.lab.dir, "newer", string(kind)), flags...); err != nil {
			return err
		}
		s.etcds[i] = servers[i].EtcdURL()
		if err := s.newer.add(servers[i]); err != nil {
			return err
		}
	}
	r.pair = s.newer
	if err := r.create(ctx, "namespace", namespaceObjects(namespace)); err != nil {
		return err
	}
	kept := slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool {
		return slices.Contains(judging, k.version().Group) && k.Resource != "mutatingadmissionpolicies" || k.Resource == "resourcequotas" || k.Resource == "limitranges" || k.Resource == "namespaces" ||
			// Events are already covered in v1. A second service CIDR would make the addresses of services random.
			k.version().Group == "events.k8s.io" || k.Resource == "servicecidrs"
	})
	for _, k := range kept {
		if err := r.turns(ctx, s, k, "kept", s.newer, "create", "get"); err != nil {
			return err
		}
	}
	if err := r.etcd(ctx, s, "kept: data in etcd", kept); err != nil {
		return err
	}
	for _, server := range servers {
		joined, err := server.Join(ctx, r.lab.binaries, filepath.Join(r.lab.dir, "older", string(server.Kind)), r.lab.emulating(server.Kind)...)
		if err != nil {
			return err
		}
		if err := s.older.add(joined); err != nil {
			return err
		}
	}
	for _, k := range kept {
		if err := r.turns(ctx, s, k, "downgraded", s.older, "get", "get the list", "label", "put", "apply"); err != nil {
			return err
		}
	}
	if err := r.etcd(ctx, s, "downgraded: data in etcd", kept); err != nil {
		return err
	}
	for _, k := range kept {
		if err := r.turns(ctx, s, k, "upgraded", s.newer, "get", "put", "get", "delete"); err != nil {
			return err
		}
		if err := r.turns(ctx, s, k, "gone", s.older, "get", "delete"); err != nil {
			return err
		}
	}
	for _, k := range kinds {
		for _, turn := range []struct {
			by   *pair
			does string
		}{
			{s.older, "create"}, {s.newer, "get"}, {s.newer, "label"}, {s.older, "get"}, {s.older, "put"}, {s.newer, "get"}, {s.older, "delete"}, {s.newer, "get"},
			{s.newer, "create"}, {s.older, "get"}, {s.older, "apply"}, {s.newer, "get"}, {s.newer, "put"}, {s.older, "get the list"}, {s.newer, "delete"}, {s.older, "get"},
		} {
			if err := r.turns(ctx, s, k, "by turns", turn.by, turn.does); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds a server to a pair; the pair's stop stops it.
func (p *pair) add(server *peer.Server) error {
	p.stops = append([]func() error{server.Stop}, p.stops...)
	s, err := newSession(string(server.Kind), server.Config, nil)
	if err != nil {
		return err
	}
	s.emulates = true
	if server.Kind == peer.KubeAPIServer {
		p.kube = s
	} else {
		p.gatehouse = s
	}
	return nil
}

// turns sends the given requests about an object of a kind to the servers of one release.
func (r *runner) turns(ctx context.Context, s *sharing, k kind, when string, by *pair, does ...string) error {
	r.pair = by
	release := "newer"
	if by == s.older {
		release = "older"
	}
	name := cmp.Or(k.Name, commonName)
	all := k.path()
	one := all + "/" + name
	object := merge(k.Object, map[string]any{"metadata": map[string]any{"name": name}})
	labels := map[string]any{"metadata": map[string]any{"labels": map[string]any{"by": release}}}
	requests := map[string]step{
		"create": {method: "POST", path: all, body: object},
		// The other server's watch cache may lag.
		"get":          {method: "GET", path: one, async: true},
		"get the list": {method: "GET", path: all + "?fieldSelector=" + url.QueryEscape("metadata.name="+name), async: true},
		"label":        {method: "PATCH", path: one, contentType: mergeType, body: labels},
		"apply":        {method: "PATCH", path: one + "?fieldManager=a&force=true", contentType: applyType, body: merge(object, labels)},
		"put":          {method: "PUT", path: one, read: one, edit: func(live map[string]any) any { return merge(live, labels) }},
		"delete":       {method: "DELETE", path: one},
	}
	for _, do := range does {
		st := requests[do]
		st.name = do + " by the " + release + ", " + when
		if err := r.run(ctx, k.version().String()+"/"+k.Resource, []step{st}); err != nil {
			return err
		}
	}
	return nil
}

// etcd compares the versions in which the objects are stored.
func (r *runner) etcd(ctx context.Context, s *sharing, name string, kinds []kind) error {
	var names []string
	for _, k := range kinds {
		names = append(names, cmp.Or(k.Name, commonName))
	}
	var stored [2]map[string]any
	for i, at := range s.etcds {
		var err error
		if stored[i], err = storedIn(ctx, at, names); err != nil {
			return err
		}
	}
	if len(stored[0]) < len(kinds)/2 {
		return fmt.Errorf("the etcd of kube-apiserver has only %d of %d objects", len(stored[0]), len(kinds))
	}
	for _, d := range walk(nil, "etcd", stored[0], stored[1]) {
		d.Case, d.Step = name, "read"
		if k := explain(r.tally.known, d, true); k != nil {
			k.seen++
		} else {
			r.tally.unknown = append(r.tally.unknown, d)
		}
	}
	return nil
}

// storedIn returns the versions and kinds of the cases' objects in an etcd, by their keys.
func storedIn(ctx context.Context, endpoint string, names []string) (map[string]any, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	all, err := client.Get(ctx, "/registry/", clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	found := map[string]any{}
	for _, kv := range all.Kvs {
		key := string(kv.Key)
		if !slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(key, "/"+name) }) {
			continue
		}
		var meta metav1.TypeMeta
		if data, ok := bytes.CutPrefix(kv.Value, []byte("k8s\x00")); ok {
			var unknown runtime.Unknown
			if err := unknown.Unmarshal(data); err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			meta.APIVersion, meta.Kind = unknown.APIVersion, unknown.Kind
		} else if err := json.Unmarshal(kv.Value, &meta); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		found[key] = meta.APIVersion + " " + meta.Kind
	}
	return found, nil
}
