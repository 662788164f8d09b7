package members

import (
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
)

// Status is the state of a member, as its server reports it. Fields are only ever added.
type Status struct {
	// ID is the ID of the member in etcd, in hexadecimal.
	ID      string `json:"id"`
	Version string `json:"version"`
	Leader  bool   `json:"leader"`
	// Applied is the last log entry in the database, and Behind the number of known entries that are not in it.
	Applied uint64 `json:"applied"`
	Behind  uint64 `json:"behind"`
	// SizeBytes and InUse are the size of the database and its used part.
	SizeBytes int64 `json:"sizeBytes"`
	InUse     int64 `json:"inUseBytes"`
	// Registrations is the revision of the registrations that the server enforces.
	Registrations string `json:"registrations"`
	// Keys are nil for a server of an older release, which cannot replace its keys while it runs.
	Keys     *Keys    `json:"keys,omitempty"`
	Problems []string `json:"problems,omitempty"`
	// Members are all members that this one has.
	Members []etcd.Peer `json:"members"`
	// Certificates lists certificates of the server that expire within 30 days or have expired.
	Certificates []Certificate `json:"certificates,omitempty"`
}

// Certificate is a certificate in a file. Fields are only ever added.
type Certificate struct {
	// Use is the label of the metric of its expiration.
	Use string `json:"use"`
	// Flag names the file; empty for a file that the server has made.
	Flag    string    `json:"flag,omitempty"`
	File    string    `json:"file"`
	Expires time.Time `json:"expires"`
	// Advice tells the administrator how to renew it.
	Advice string `json:"advice"`
}

// Text is the certificate in a sentence.
func (c *Certificate) Text(now time.Time) string {
	const day = 24 * time.Hour
	named := c.File
	if c.Flag != "" {
		named += " (" + c.Flag + ")"
	}
	left := c.Expires.Sub(now)
	when := fmt.Sprintf("expires in %d days, on", left/day)
	switch {
	case left < 0:
		when = "has expired, on"
	case left < day:
		when = "expires within a day, on"
	}
	return fmt.Sprintf("The certificate %s %s %s: %s", named, when, c.Expires.UTC().Format(time.RFC3339), c.Advice)
}

// Keys are the keys of a server that the servers of the cluster share.
type Keys struct {
	// Rotation is the phase of a rotation that the server has applied (keys.Rotation.State); empty for none.
	Rotation string `json:"rotation,omitempty"`
	// Restart means that connections to other members trust a previous CA until the server starts again.
	Restart bool `json:"restart,omitempty"`
}
