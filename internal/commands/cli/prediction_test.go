package cli_test

import (
	"slices"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/prediction"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// found are seeds beyond the first ones that detected bugs. 161: validating webhooks see the name that the
// server generates. 738: for namespaces, webhooks see that name as a label, too.
var found = []uint64{161, 738}

// For random requests, the explanations of the server, and of the command reading a server or files, predict
// the actual admission.
func TestWhatIsExplainedHappens(t *testing.T) {
	worlds := speed.Of(25, 100)
	recorder, err := prediction.NewRecorder()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := recorder.Close(); err != nil {
			t.Error(err)
		}
	}()
	s := harness.Start(t, "--controllers", "-*")
	session, err := prediction.NewSession(t.Context(), prediction.Options{Admin: s.Admin, Gatehouse: true, Recorder: recorder, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	var sum prediction.Tally
	seeds := slices.Clone(found)
	for seed := range uint64(worlds) {
		seeds = append(seeds, seed+1)
	}
	for _, seed := range seeds {
		tally, err := session.Play(t.Context(), prediction.NewWorld(seed))
		if err != nil {
			t.Fatal(err)
		}
		sum.Add(tally)
	}
	for _, d := range sum.Differences {
		t.Error(d)
	}
	t.Logf("%d requests, %d explanations, %d of them with something unknown; %d calls, %d of them repeated, %d in another version; %d requests rejected",
		sum.Requests, sum.Explained, sum.Unknown, sum.Calls, sum.Again, sum.Equivalent, sum.Rejected)
	// Worlds without rejections or calls prove nothing.
	for _, c := range []struct {
		what       string
		got, least int
	}{
		{"calls", sum.Calls, worlds}, {"repeated calls", sum.Again, worlds / 20}, {"calls in another version", sum.Equivalent, worlds / 20},
		{"rejected requests", sum.Rejected, worlds / 10}, {"requests that go on", sum.Requests - sum.Rejected, worlds / 2},
	} {
		if c.got < c.least {
			t.Errorf("%d %s, want at least %d", c.got, c.what, c.least)
		}
	}
}
