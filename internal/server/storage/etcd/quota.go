package etcd

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"k8s.io/klog/v2"
)

const (
	// DefaultQuota is how many bytes the database may have.
	DefaultQuota = 8 << 30
	// quotaInterval is how often the database is looked at.
	quotaInterval = 10 * time.Second
	// quotaTimeout bounds what etcd is asked to do about it.
	quotaTimeout = 10 * time.Second
)

// quota watches the size of the database. When it reaches the quota, etcd raises an
// alarm and refuses to store more, also after a restart, until somebody makes the
// database smaller and takes the alarm back. Nobody else can reach an embedded etcd,
// so this does both, as soon as enough was deleted and is gone from the history, or
// the quota is larger than before.
type quota struct {
	limit int64
	space *space
	// full is set while etcd refuses to store more.
	full bool
}

// run looks at the database until ctx ends.
func (q *quota) run(ctx context.Context, server *etcdserver.EtcdServer) {
	tick := time.NewTicker(quotaInterval)
	defer tick.Stop()
	for {
		if err := q.look(ctx, server); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Could not free space in etcd's database, which is full; will retry")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look lifts the alarm if there is one and it can be lifted.
func (q *quota) look(ctx context.Context, server *etcdserver.EtcdServer) error {
	alarmed := false
	for _, alarm := range server.Alarms() {
		alarmed = alarmed || alarm.GetAlarm() == etcdserverpb.AlarmType_NOSPACE
	}
	if !alarmed {
		return nil
	}
	backend := server.Backend()
	if !q.full {
		q.full = true
		klog.Errorf("etcd's database has reached the %s of --etcd-quota: accepting only deletions; delete objects, or start the server with a larger quota",
			mebibytes(uint64(q.limit)))
	}
	// Below nine tenths there is room for more than the next few writes.
	enough := q.limit / 10 * 9
	inUse := backend.SizeInUse()
	if inUse >= enough {
		return nil
	}
	if backend.Size() >= enough {
		if free, err := q.space.free(q.space.dir); err == nil && free < uint64(inUse)+q.space.margin {
			return fmt.Errorf("the disk with %s has %s free, but a copy of the database needs %s", q.space.dir, mebibytes(free), mebibytes(uint64(inUse)+q.space.margin))
		}
		if err := backend.Defrag(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, quotaTimeout)
	defer cancel()
	if _, err := server.Alarm(ctx, &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_DEACTIVATE, Alarm: etcdserverpb.AlarmType_NOSPACE, MemberID: uint64(server.MemberID()),
	}); err != nil {
		return err
	}
	q.full = false
	klog.Warningf("etcd's database uses %s now, less than its quota: accepting writes again", mebibytes(uint64(inUse)))
	return nil
}
