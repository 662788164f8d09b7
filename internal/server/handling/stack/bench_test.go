package stack

import "testing"

// depth is how much of its stack a request uses, in bytes. A get or a patch of a pod uses more than 16
// KiB.
const depth = room - 2<<10

// BenchmarkRequest is a request in a goroutine of its own, as in k8s.io/apiserver: its stack grows
// from the smallest one by doubling, each time with a copy of its contents, or at once.
//
//	go test ./internal/server/handling/stack -bench . -count 10
func BenchmarkRequest(b *testing.B) {
	for name, first := range map[string]func(){"stack=doubled": func() {}, "stack=at_once": Grow} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			done := make(chan struct{})
			for b.Loop() {
				go func() {
					first()
					descend(depth)
					done <- struct{}{}
				}()
				<-done
			}
		})
	}
}
