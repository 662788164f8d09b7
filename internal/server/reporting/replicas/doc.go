// Package replicas says which registrations every server enforces.
//
// Each server announces itself by a key in etcd that goes away with it: the key
// hangs on a lease, which the server renews. The key says at which revisions the
// server took registrations into use and when; it is written when they changed,
// and renewing the lease writes nothing. A registration is in force when every
// server that is announced has taken in a revision at or after the registration's
// own.
//
// That is sound, because a server judges requests only by what it read while its
// announcement was sure to last: an Announcer refuses reads that might be used
// when the announcement is gone. It announces itself before its first read, so
// that there is no server that nobody waits for.
//
// In addition, the key says of which kinds the server enforces nothing, because their
// admission plugins do not run, and which webhooks it does not call, because their
// servers could not be reached.
//
// States serves this as the resource registrationstates of gatehouse.dev: one
// object for each registration, computed when it is asked for.
package replicas
