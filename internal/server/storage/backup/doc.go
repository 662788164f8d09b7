// Package backup saves the data of a server with an embedded etcd to files, and restores it.
//
// A backup is a tar archive, so that an administrator can look into it without this program:
//
//	backup.json   the format of the data, versions, and the time of the backup
//	etcd.db       a snapshot of etcd, as etcdctl makes it
//	pki/          the server's certificate authorities and keys
//	SHA256SUMS    the checksums of these files
//
// # Restoring
//
// Restore prepares the restored data in a directory next to the current data. Then it moves the
// current data aside, keeps them, and moves the restored data to their place. From the first of
// these moves to the last, the file FORMAT marks the directory as being restored: no version of the
// server serves such a directory. If the process is killed, Finish makes the remaining moves.
package backup
