package main

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// drawn are the endpoints of the first versions of the console, for an older program given as the server other.
var drawn = []string{"/console/draw/write", "/console/draw/read", "/console/draw/object"}

func init() {
	for _, a := range []struct{ name, about, body string }{
		{"console-lists", "requests for views of the console, with a list of five million empty objects", `{"a":[` + strings.Repeat("{},", 5<<20) + `{}]}`},
		{"console-depth", "requests for views of the console, with 9,000 maps in one another", strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000)},
		{"console-documents", "requests for views of the console, with four million documents", strings.Repeat("---\n", 4_000_000)},
	} {
		manifest, err := json.Marshal(map[string]string{"operation": "CREATE", "manifest": a.body})
		if err != nil {
			panic(err)
		}
		requests := []load.Request{post("/console/view/explain", string(manifest)), post("/console/view/explain", a.body)}
		for _, path := range drawn {
			requests = append(requests, post(path, a.body))
		}
		register(attack{
			name: a.name, about: a.about, only: []peer.Kind{peer.GatehouseEmbedded, peer.GatehouseOther},
			strike: func(ctx context.Context, t *target) error {
				return t.each(ctx, 3*len(requests), func(i int) load.Request { return requests[i%len(requests)] })
			},
		})
	}
}
