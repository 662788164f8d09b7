package members

import "github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"

// Status is how a member is, as its server says. Fields are only ever added.
type Status struct {
	// ID is that of the member in etcd, in hexadecimal.
	ID      string `json:"id"`
	Version string `json:"version"`
	Leader  bool   `json:"leader"`
	// Applied is the last entry of the log that is in the database, and Behind how many entries are known and not in it.
	Applied uint64 `json:"applied"`
	Behind  uint64 `json:"behind"`
	// SizeBytes and InUse are those of the database.
	SizeBytes int64 `json:"sizeBytes"`
	InUse     int64 `json:"inUseBytes"`
	// Registrations is the revision of the registrations that the server judges requests by.
	Registrations string `json:"registrations"`
	// Keys are nil for a server of an older release, which cannot replace its keys while it runs.
	Keys     *Keys    `json:"keys,omitempty"`
	Problems []string `json:"problems,omitempty"`
	// Members are all members, as this one knows them.
	Members []etcd.Peer `json:"members"`
}

// Keys are the keys of a server that the servers of the cluster share.
type Keys struct {
	// Rotation is the phase of a rotation that the server has applied (auth.Rotation.State); empty for none.
	Rotation string `json:"rotation,omitempty"`
	// Restart says that connections to other members trust a previous authority until the server starts again.
	Restart bool `json:"restart,omitempty"`
}
