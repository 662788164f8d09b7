// Package rejections tells the owners of objects that admission rejected.
//
// A controller whose creates are rejected sees the error. The person who made the owner,
// such as a ReplicaSet, does not: they see an owner without objects. A Teller stands
// around admission and leaves an Event on the owner, with the reason FailedAdmission and
// what the controller received.
//
// About does the same for what the server did to an object on its own.
//
// Hinting leaves an event on a workload whose controller does not run, and on a pod for which there
// is no node.
//
// No request waits for that, and none fails because of it. Equal events are counted in
// one, many about one owner are put together, and the rate is limited, by the library that
// controllers use. Events that cannot be written in time are left out.
package rejections
