package before

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// ofMutants is the kind of --coverage-min for mutation tests, and ofAll all other kinds together.
const (
	ofMutants = "mutants"
	ofAll     = ""
)

// checkCoverage validates and parses the flags.
func (o *testOptions) checkCoverage() error {
	if endings := []string{".html", ".md", ".info", ".json"}; o.coverage != "" && o.coverage != "-" && !slices.Contains(endings, filepath.Ext(o.coverage)) {
		return command.Usagef("--coverage=%s: the file must end in one of %s", o.coverage, strings.Join(endings, ", "))
	}
	o.minimums = map[string]int{}
	for _, text := range o.coverageMin {
		kind, number, named := strings.Cut(text, "=")
		if !named {
			kind, number = ofAll, text
		}
		kinds := append(slices.Clone(suite.CoverageKinds), ofMutants)
		if named && !slices.Contains(kinds, kind) {
			return command.Usagef("--coverage-min: %q is not one of %s", kind, strings.Join(kinds, ", "))
		}
		percent, err := strconv.Atoi(strings.TrimSuffix(number, "%"))
		if err != nil || percent < 0 || percent > 100 {
			return command.Usagef("--coverage-min: %q is not a number from 0 to 100", number)
		}
		o.minimums[kind] = percent
	}
	if _, wanted := o.minimums[ofMutants]; wanted && o.mutate == "" {
		return command.Usagef("--coverage-min=mutants=... needs --mutate")
	}
	return nil
}

// covered returns an error if the coverage is below --coverage-min.
func (o *testOptions) covered(r *suite.Report) error {
	if len(o.minimums) == 0 {
		return nil
	}
	var missed []string
	check := func(kind, what string, taken, all int) {
		if least, wanted := o.minimums[kind]; wanted && suite.Percent(taken, all) < least {
			missed = append(missed, fmt.Sprintf("%d %% of %s, want %d %%", suite.Percent(taken, all), what, least))
		}
	}
	taken, all := r.Coverage.Total()
	check(ofAll, "all ways", taken, all)
	for _, s := range r.Coverage.Shares() {
		check(s.Kind, "the "+s.Kind, s.Taken, s.All)
	}
	if m := r.Mutants; m != nil {
		check(ofMutants, "the changes", m.Noticed, m.Tried)
	}
	if len(missed) > 0 {
		return errors.New("the tests cover " + strings.Join(missed, "; "))
	}
	return nil
}

// writeCoverage writes the coverage to the file of --coverage.
func (o *testOptions) writeCoverage(c *suite.Coverage) error {
	if c == nil || o.coverage == "" || o.coverage == "-" {
		return nil
	}
	var b bytes.Buffer
	var err error
	switch filepath.Ext(o.coverage) {
	case ".html":
		err = c.Document().Format(&b, "html")
	case ".md":
		err = c.Document().Format(&b, "markdown")
	case ".info":
		err = c.LCOV(&b)
	default:
		err = command.PrintAs(&b, "json", c)
	}
	if err == nil {
		err = files.ReplaceOutput(o.coverage, b.Bytes(), 0o644)
	}
	if err != nil {
		return fmt.Errorf("--coverage: %w", err)
	}
	return nil
}
