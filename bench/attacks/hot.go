package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
)

// hotClients clients patch one object for hotTime. Each sends its next patch when the previous one is answered.
const (
	hotClients = 200
	hotTime    = 20 * time.Second
)

func init() {
	for name, as := range map[string]string{"hot-object-of-administrators": "", "hot-object-of-a-user": attacker} {
		register(attack{
			name:  name,
			about: fmt.Sprintf("%d clients patch one ConfigMap for %s; another client with the same rights creates ConfigMaps", hotClients, hotTime),
			bystander: func() load.Request {
				r := load.ConfigMap.Create()
				if r.As = as; as != "" {
					r.As = bystander
				}
				return r
			},
			prepare: func(ctx context.Context, t *target) error {
				c := load.NewClient(t.Server)
				defer c.Close()
				return c.Do(ctx, load.Request{Method: http.MethodPost, Path: configMaps, Body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"hot"}}`}, io.Discard)
			},
			strike: func(ctx context.Context, t *target) error {
				var number atomic.Int64
				var all sync.WaitGroup
				end := time.Now().Add(hotTime)
				for range hotClients {
					all.Go(func() {
						c := load.NewClient(t.Server)
						defer c.Close()
						for time.Now().Before(end) && ctx.Err() == nil {
							err := c.Do(ctx, load.Request{
								Method: http.MethodPatch, Path: configMaps + "/hot", ContentType: "application/merge-patch+json",
								Body: fmt.Sprintf(`{"data":{"number":"%d"}}`, number.Add(1)), As: as,
							}, io.Discard)
							if t.answered(err); err != nil {
								// A rejection asks the client to retry after a second.
								every(ctx, time.Second)
							}
						}
					})
				}
				all.Wait()
				return ctx.Err()
			},
		})
	}
}
