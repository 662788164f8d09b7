package etcd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

// Snapshot is a stream of the data of an etcd at one moment. It is a database with its checksum at
// the end: etcdutl can restore it.
type Snapshot struct {
	// Size is the number of bytes to read.
	Size int64
	// Version is the version of the data, such as 3.7.0.
	Version string

	stream pb.Maintenance_SnapshotClient
	rest   []byte
}

// TakeSnapshot begins to read the data of the etcd that the client is connected to. Reading
// ends with ctx.
func TakeSnapshot(ctx context.Context, client *clientv3.Client) (*Snapshot, error) {
	stream, err := pb.NewMaintenanceClient(client.ActiveConnection()).Snapshot(ctx, &pb.SnapshotRequest{})
	if err != nil {
		return nil, err
	}
	first, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	// The checksum comes after the remaining bytes.
	size := int64(len(first.GetBlob())) + int64(first.GetRemainingBytes()) + checksumSize
	return &Snapshot{Size: size, Version: first.GetVersion(), stream: stream, rest: first.GetBlob()}, nil
}

// checksumSize is the length of the checksum of a snapshot, in bytes.
const checksumSize = 32

// Read implements io.Reader.
func (s *Snapshot) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		next, err := s.stream.Recv()
		if err != nil {
			return 0, err
		}
		s.rest = next.GetBlob()
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Restore makes the data directory of an embedded etcd from the file of a snapshot. Revisions begin
// above the result of revision, and all earlier revisions are compacted: a client that watches from
// an earlier revision has to read everything again. The directory must be empty or absent. The
// error describes the problem with the file.
func Restore(file, dir string, revision func(last int64) int64) error {
	f := newFailure()
	done := make(chan error, 1)
	go func() {
		// etcd ends the goroutine, or panics, on data that it cannot interpret.
		err := errors.New("etcd cannot read it")
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("etcd cannot read it (%v)", p)
			} else if failed := f.get(); failed != nil {
				err = fmt.Errorf("etcd cannot read it (%w)", failed)
			}
			done <- err
		}()
		err = restore(f, file, dir, revision)
	}()
	return <-done
}

func restore(f *failure, file, dir string, revision func(last int64) int64) error {
	last, err := LastRevision(file)
	if err != nil {
		return err
	}
	if err := snapshot.NewV3(f.logger()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: dir,
		Name: memberName, PeerURLs: []string{peerURL.String()}, InitialCluster: initialCluster, InitialClusterToken: "gatehouse-restored",
		RevisionBump: uint64(max(revision(last)-last, 1)), MarkCompacted: true,
	}); err != nil {
		return err
	}
	return checkData(filepath.Join(dir, "member"))
}

// LastRevision returns the revision of the last write in the file of a database. It ignores writes
// in the log that are not yet in the database.
func LastRevision(file string) (last int64, err error) {
	err = readDatabase(file, func(tx *bolt.Tx) error {
		keys := tx.Bucket(schema.Key.Name())
		if keys == nil {
			return errors.New("it has no keys")
		}
		if key, _ := keys.Cursor().Last(); key != nil {
			last = mvcc.BytesToRev(key).Main
		}
		return nil
	})
	return last, err
}
