// Package quotas keeps ResourceQuotas exact while objects come and go.
//
// Admission charges a quota before the object is stored, and the quota controller counts stored
// objects. A count that misses an object which was charged and is not stored yet lowers the use too
// far, and admission then allows one object too many. Upstream has no remedy.
//
// Here each namespace has a key in etcd, its fence. A charged write is stored in a transaction that
// compares the fence with its value before the charge. A count reads the quota first, moves the
// fence then, counts last, and writes the quota on the condition that it is as it was read. So each
// charge that the count may lower belongs to an object that is counted, or to a write whose
// transaction fails: such a write is charged again, and then stored. This holds for any number of
// servers on one etcd, however late a write arrives there.
//
// In its own server, a count also waits for a moment without such writes, so that hardly any write
// has to be charged again.
package quotas
