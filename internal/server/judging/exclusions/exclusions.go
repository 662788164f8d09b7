package exclusions

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/util/filesystem"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/internal/engine/exclusion"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/metric"
)

const (
	// lookEvery is how often Follow reads the file with exclusion rules, in addition to the
	// reads after events of the file system. settled is the time between two reads that must
	// agree.
	lookEvery = time.Second
	settled   = 100 * time.Millisecond
)

// Follow gives use the exclusion rules of an AdmissionConfiguration as they change in its file,
// until ctx ends. first is the content of the file at the start. The server reads the rest of
// the file only at the start. A bad file changes nothing (S23.8).
func Follow(ctx context.Context, file string, first *admission.Configuration, use func(*exclusion.Rules) error) {
	if file == "" {
		return
	}
	configured := first
	var last []byte
	var said string
	bad := func(err error) {
		exclusionReloads().WithLabelValues("failure").Inc()
		klog.ErrorS(err, "Cannot use the changed exclusion rules; the earlier rules stay active", "file", file)
	}
	look := func() {
		now, err := files.Read(file, files.Configuration)
		for err == nil && last != nil && !bytes.Equal(now, last) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(settled):
			}
			before := now
			if now, err = files.Read(file, files.Configuration); bytes.Equal(now, before) {
				break
			}
		}
		if errors.As(err, new(files.Refused)) && said != err.Error() {
			said = err.Error()
			bad(err)
		}
		if err != nil || bytes.Equal(now, last) {
			// A file that cannot be read for a moment is being replaced.
			return
		}
		last, said = now, ""
		configuration, err := admission.LoadConfiguration(file)
		if err == nil {
			if configuration.SameExclusions(configured) {
				return
			}
			err = use(configuration.Exclusions())
		}
		if err != nil {
			bad(err)
			return
		}
		configured = configuration
		exclusionReloads().WithLabelValues("success").Inc()
		klog.InfoS("Exclusion rules have changed and are in use", "file", file, "rules", len(configuration.Exclusions().List()))
	}
	filesystem.WatchUntil(ctx, lookEvery, filepath.Dir(file), look, func(err error) {
		klog.V(1).InfoS("Cannot watch the file with exclusion rules; looking at it every second", "file", file, "err", err)
	})
}

// exclusionReloads counts changes of exclusion rules.
var exclusionReloads = sync.OnceValue(func() *metrics.CounterVec {
	return metric.Registered(metric.Counter("admission_exclusion_rules_reloads_total",
		"Changes of the exclusion rules in the file of --admission-control-config-file, by status: success when the rules are in use, failure when the file is bad and the earlier rules stay active.", "status"))
})
