// Package replicas tracks which registrations each server enforces.
//
// Each server announces itself by a key in etcd that expires after the server ends: the key belongs
// to a lease, which the server renews. The key has the revisions at which the server took
// registrations into use, and the times. The server writes the key when these change; renewing the
// lease writes nothing. A registration is active when every announced server has taken in a
// revision at or after the registration's own.
//
// This is sound, because a server evaluates requests only against registrations that it read while
// its announcement was sure to last: an Announcer refuses reads that might be used after the
// announcement has expired. It announces itself before its first read, so that clients that wait
// for a registration wait for every server.
//
// In addition, the key lists kinds that the server does not enforce, because their admission
// plugins do not run, and webhooks that it does not call, because their servers could not be
// reached.
//
// States serves this as the resource registrationstates of gatehouse.dev: one object for each
// registration, computed when a client reads it.
package replicas
