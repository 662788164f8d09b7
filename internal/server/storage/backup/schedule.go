package backup

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/util/parsers"

	"github.com/gatehouse-dev/gatehouse/internal/kit/metric"
)

// backupTimeout bounds a scheduled backup.
const backupTimeout = time.Hour

// lookEvery is how often Run checks the clock, which may have been changed.
const lookEvery = time.Minute

// Times are the times of a schedule.
type Times interface {
	// Next returns the first time of the schedule after a time; zero if there is none.
	Next(time.Time) time.Time
}

// ParseSchedule parses a schedule in the form of cron, as a CronJob has it.
func ParseSchedule(text string) (Times, error) {
	times, err := parsers.ParseCronScheduleWithPanicRecovery(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a schedule such as \"0 */6 * * *\" or @daily: %w", text, err)
	}
	if times.Next(time.Now()).IsZero() {
		return nil, fmt.Errorf("%q never comes", text)
	}
	return times, nil
}

// Schedule makes backups at the times of a schedule.
type Schedule struct {
	Source
	Times Times
	// Dir is the directory of the backups, and Keep the number of backups to keep.
	Dir  string
	Keep int
	// Reserve is the number of bytes of the disk that stay free.
	Reserve int64
}

// Run makes backups until ctx ends. A backup that fails is logged and counted, and not retried:
// the next backup is made at its time.
func (s *Schedule) Run(ctx context.Context) {
	counts().all.WithLabelValues("failure").Add(0)
	if list, err := List(s.Dir); err == nil {
		for _, e := range list {
			if e.Manifest != nil {
				counts().succeeded(e.Manifest, e.Size)
				break
			}
		}
	}
	for next := s.Times.Next(time.Now()); ; {
		wait := time.NewTimer(min(time.Until(next), lookEvery))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return
		}
		if time.Now().Before(next) {
			continue
		}
		s.make(ctx)
		next = s.Times.Next(time.Now())
	}
}

// make makes one backup, and removes old ones.
func (s *Schedule) make(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, backupTimeout)
	defer cancel()
	saved, err := s.Save(ctx, NewPath(s.Dir), s.Reserve)
	if err != nil {
		counts().all.WithLabelValues("failure").Inc()
		klog.ErrorS(err, "Cannot make the scheduled backup; the next one is made at its time", "dir", s.Dir)
		return
	}
	counts().all.WithLabelValues("success").Inc()
	counts().succeeded(saved.Manifest, saved.Size)
	klog.InfoS("Made the scheduled backup", "file", saved.File, "bytes", saved.Size)
	if _, err := Prune(s.Dir, s.Keep); err != nil {
		klog.ErrorS(err, "Cannot remove old backups", "dir", s.Dir)
	}
}

// counters are the metrics of scheduled backups.
type counters struct {
	all        *metrics.CounterVec
	last, size *metrics.Gauge
}

func (c *counters) succeeded(m *Manifest, size int64) {
	c.last.Set(float64(m.Created.Unix()))
	c.size.Set(float64(size))
}

var counts = sync.OnceValue(func() *counters {
	c := &counters{
		all: metric.Counter("backup_scheduled_total",
			"Scheduled backups, by result: success or failure.", "result"),
		last: metrics.NewGauge(&metrics.GaugeOpts{
			Namespace: "gatehouse", Subsystem: "backup", Name: "last_success_timestamp_seconds",
			Help:           "When the latest scheduled backup in --backup-dir was made.",
			StabilityLevel: metrics.ALPHA,
		}),
		size: metrics.NewGauge(&metrics.GaugeOpts{
			Namespace: "gatehouse", Subsystem: "backup", Name: "last_size_bytes",
			Help:           "Size of the latest scheduled backup in --backup-dir.",
			StabilityLevel: metrics.ALPHA,
		}),
	}
	legacyregistry.MustRegister(c.all, c.last, c.size)
	return c
})
