package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
)

const victim = "victim"

func init() {
	register(attack{
		name: "userpatches-merge", about: "a user who may patch one ConfigMap sends a JSON merge patch of 2.9 MiB, 9,000 levels deep, as a dry run",
		prepare: createVictim,
		strike: func(ctx context.Context, t *target) error {
			return t.each(ctx, 1, func(int) load.Request {
				return patchVictim("application/merge-patch+json", `{"unknown":`+nestedObjects(9000, 330)+"}")
			})
		},
	})
	register(attack{
		name: "userpatches-merge-small", about: "the same with 52 KiB, 20 at once",
		prepare: createVictim,
		strike: func(ctx context.Context, t *target) error {
			return t.each(ctx, 20, func(int) load.Request {
				return patchVictim("application/merge-patch+json", `{"unknown":`+nestedObjects(9000, 1)+"}")
			})
		},
	})
	register(attack{
		name: "userpatches-moves", about: "20 JSON patches at once, each with 9,990 move operations in a list of 300,000",
		prepare: createVictim,
		strike: func(ctx context.Context, t *target) error {
			operations := fmt.Sprintf(`[{"op":"add","path":"/unknown","value":[%s0]}`, strings.Repeat("0,", 299_999)) +
				strings.Repeat(`,{"op":"move","from":"/unknown/0","path":"/unknown/299999"}`, 9990) + "]"
			return t.each(ctx, 20, func(int) load.Request { return patchVictim("application/json-patch+json", operations) })
		},
	})
	register(attack{
		name: "userpatches-duplicates", about: "10 JSON merge patches at once with 100,000 duplicate fields below a name of 1.5 MiB",
		prepare: createVictim,
		strike: func(ctx context.Context, t *target) error {
			body := `{"` + strings.Repeat("k", 3<<19) + `":{` + strings.Repeat(`"a":1,`, 100_000) + `"a":1}}`
			return t.each(ctx, 10, func(int) load.Request { return patchVictim("application/merge-patch+json", body) })
		},
	})
}

// nestedObjects returns objects in each other, with names of some length.
func nestedObjects(levels, name int) string {
	return strings.Repeat(`{"`+strings.Repeat("k", name)+`":`, levels) + "{}" + strings.Repeat("}", levels)
}

// createVictim creates the ConfigMap that patches are for.
func createVictim(ctx context.Context, t *target) error {
	c := load.NewClient(t.Server)
	defer c.Close()
	return c.Do(ctx, load.Request{Method: http.MethodPost, Path: configMaps, Body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + victim + `"}}`}, io.Discard)
}

// patchVictim is a dry run of a patch.
func patchVictim(mediaType, body string) load.Request {
	return load.Request{Method: http.MethodPatch, Path: configMaps + "/" + victim + "?dryRun=All", ContentType: mediaType, Body: body, As: attacker}
}
