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
	Registrations string   `json:"registrations"`
	Problems      []string `json:"problems,omitempty"`
	// Members are all members, as this one knows them.
	Members []etcd.Peer `json:"members"`
}
