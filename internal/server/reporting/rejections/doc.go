// Package rejections writes events for the owners of objects that admission rejected.
//
// A controller whose creates are rejected gets the error. The user that made the owner, such as a
// ReplicaSet, does not get it, and only sees an owner without objects. A Teller wraps admission and
// writes an Event on the owner, with the reason FailedAdmission and the error that the controller
// got.
//
// Initializer writes such an event about an object that an initializer rejected after it was stored.
//
// About writes such an event about a change that the server itself made to an object.
//
// Hinting writes an event on a workload whose controller does not run, and on a pod for which there
// is no node.
//
// No request waits for an event, or fails because of one. client-go, as in controllers, counts equal
// events in one, combines many events about one owner, and limits their rate. Events that cannot be
// written in time are left out.
package rejections
