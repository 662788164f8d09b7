package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

const (
	// DefaultQuota is the default bound of the database, in bytes.
	DefaultQuota = 8 << 30
	// quotaInterval is how often the size of the database is checked.
	quotaInterval = 10 * time.Second
	// history is how much of its history a full database keeps: as much as a database that is not
	// full.
	history = 5 * time.Minute
	// quotaTimeout bounds each request to etcd to free space.
	quotaTimeout = 10 * time.Second

	// The server makes the database smaller when that frees at least spareLeast bytes and half
	// of the database. etcd answers no request during that time: for 128 MiB in use, 2.8 s at
	// most on a machine with twenty processes for each core. So the server does it once in
	// tidyInterval at most, and leaves it to the administrator when more than copiedMost bytes
	// are in use.
	spareLeast, copiedMost = 128 << 20, 128 << 20
	tidyInterval           = time.Hour
)

// quota watches the size of the database. When it reaches the quota, etcd raises an
// alarm and refuses to store more, also after a restart, until a client makes the database
// smaller and takes the alarm back. Only this server can reach an embedded etcd. So quota does
// both, as soon as enough keys were deleted and have left the history, or the quota is larger
// than before.
type quota struct {
	limit int64
	space *space
	// full is set while etcd refuses to store more.
	full bool
	// marked is the revision of the time at, for the next compaction; 0 for none.
	marked int64
	at     time.Time
	// tidied is when the database was last made smaller to give back space.
	tidied time.Time
}

// pays reports whether making a database smaller frees enough and takes little enough time.
func pays(size, inUse int64) bool {
	return size-inUse >= max(spareLeast, inUse) && inUse <= copiedMost
}

// tidy makes the database smaller if that pays and the disk has room for the copy.
func (q *quota) tidy(database backend.Backend, now time.Time) error {
	size, inUse := database.Size(), database.SizeInUse()
	if !pays(size, inUse) || now.Sub(q.tidied) < tidyInterval || q.copyFits(inUse) != nil {
		return nil
	}
	q.tidied = now
	begun := time.Now()
	if err := database.Defrag(); err != nil {
		return err
	}
	klog.InfoS("Made etcd's database smaller; requests waited meanwhile", "before", mebibytes(uint64(size)), "now", mebibytes(uint64(database.Size())), "took", time.Since(begun))
	return nil
}

// copyFits returns an error when the disk has no room for a copy of the bytes in use.
func (q *quota) copyFits(inUse int64) error {
	need := uint64(inUse) + q.space.margin
	if free, err := q.space.free(q.space.dir); err == nil && free < need {
		return fmt.Errorf("the disk with %s has %s free, but a copy of the database needs %s", q.space.dir, mebibytes(free), mebibytes(need))
	}
	return nil
}

// run checks the database until ctx ends.
func (q *quota) run(ctx context.Context, server *etcdserver.EtcdServer) {
	wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
		if err := q.look(ctx, server, time.Now()); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Could not free space in etcd's database, which is full; will retry")
		}
		if err := q.tidy(server.Backend(), time.Now()); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Could not make etcd's database smaller; will retry in an hour")
		}
	}, quotaInterval)
}

// compact compacts the revisions before the last history. The compactor of the stores cannot do that
// while the database is full: it writes a key with each compaction. Deleted values would stay in the
// history, and the database full, for ever.
func (q *quota) compact(ctx context.Context, server *etcdserver.EtcdServer, now time.Time) error {
	if q.marked != 0 && now.Sub(q.at) < history {
		return nil
	}
	before := q.marked
	q.marked, q.at = server.KV().Rev(), now
	if before == 0 {
		return nil
	}
	_, err := server.Compact(ctx, &etcdserverpb.CompactionRequest{Revision: before, Physical: true})
	if errors.Is(err, mvcc.ErrCompacted) {
		return nil
	}
	return err
}

// look clears the alarm if there is one and it can be cleared.
func (q *quota) look(ctx context.Context, server *etcdserver.EtcdServer, now time.Time) error {
	alarmed := false
	for _, alarm := range server.Alarms() {
		// Other members maintain their own databases.
		alarmed = alarmed || alarm.GetAlarm() == etcdserverpb.AlarmType_NOSPACE && alarm.GetMemberID() == uint64(server.MemberID())
	}
	if !alarmed {
		q.marked = 0
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, quotaTimeout)
	defer cancel()
	if err := q.compact(ctx, server, now); err != nil {
		return err
	}
	backend := server.Backend()
	if !q.full {
		q.full = true
		klog.Errorf("etcd's database has reached the %s of --etcd-quota: accepting only deletions; delete objects, or start the server with a larger quota",
			mebibytes(uint64(q.limit)))
	}
	// Below nine tenths there is enough room for many more writes.
	enough := q.limit / 10 * 9
	inUse := backend.SizeInUse()
	if inUse >= enough {
		return nil
	}
	if backend.Size() >= enough {
		if err := q.copyFits(inUse); err != nil {
			return err
		}
		if err := backend.Defrag(); err != nil {
			return err
		}
	}
	if _, err := server.Alarm(ctx, &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_DEACTIVATE, Alarm: etcdserverpb.AlarmType_NOSPACE, MemberID: uint64(server.MemberID()),
	}); err != nil {
		return err
	}
	q.full = false
	klog.Warningf("etcd's database uses %s now, less than its quota: accepting writes again", mebibytes(uint64(inUse)))
	return nil
}
