// Package gatehousetest gives a Go test an API server with admission.
//
//	func TestPods(t *testing.T) {
//		config := gatehousetest.Start(t)
//		// a *rest.Config, for client-go or controller-runtime
//	}
//
// The server is a separate process: its code is not linked into the test. The first test that
// calls Start starts it, and the tests of a test binary share it, unless a test asks for a server
// of its [Own] or for a server that packages share ([Shared]). The server keeps its data in a
// temporary directory and ends with the test process, however that process ends.
//
// # The environment of a test
//
// CRDs, policies, webhook configurations and other objects come from files ([Manifests]) or
// from Go ([Objects]). [Webhooks] serves webhooks in the test process and changes the webhook
// configurations to its address and certificate. All of them are active when Start returns, and
// are removed when the test is over; CRDs remain on a shared server.
//
// Whenever admission rejects or changes a write that was made with the configuration, the
// log of the test has the trace: which webhooks were called, what each answered, and why other
// webhooks were not called.
//
// # The program
//
// The server's program is, in this order:
//
//  1. $GATEHOUSE_BINARY.
//  2. The result of 'go build github.com/gatehouse-dev/gatehouse/cmd/gatehouse' in the module of
//     the test. The version is in a file gatehouse.mod next to its go.mod, or in go.mod if there
//     is none.
//  3. gatehouse on the PATH.
//
// This module requires client-go 0.35, but not the server's module. So the go.mod of an operator
// keeps its version of client-go, and gatehouse.mod has the versions that the program needs.
// These two commands create that file:
//
//	go mod init -modfile=gatehouse.mod gatehouse
//	go get -tool -modfile=gatehouse.mod github.com/gatehouse-dev/gatehouse/cmd/gatehouse
//
// The program must be as new as this module, or newer.
//
// # Concurrency
//
// All functions may be called by tests that run in parallel. Tests on a shared server see
// each other's objects: webhooks and policies of one test apply to the writes of another
// while both run. Select by namespace, or use Own.
package gatehousetest
