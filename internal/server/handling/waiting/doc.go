// Package waiting lets creates leave the server's handlers while their creators wait for initializers. A
// create that waits inside the handlers costs about 75 KiB of memory, mostly the stacks of three
// goroutines. A create that has left them costs about 20 KiB.
//
// # One request
//
//  1. Room.Doorway, outside of all other handlers, opens a visit for each POST.
//  2. Serve calls the create handler of k8s.io/apiserver. The storage behind it has stored the
//     object, finds that its creator has to wait, calls Leave, and returns ErrLeft.
//  3. Everything returns: the create handler, whose answer Serve discards; Serve, which
//     reports that the request has left; the caller of Serve, which gives Finish the function
//     to call at the end; the other handlers.
//  4. Doorway calls this function on the connection's own goroutine: it waits, and
//     answers.
//
// # Invariants
//
//   - A request is answered once. A visit is answered or left, whichever comes first, and
//     never both: Leave fails when there is an answer, and there is no answer of the handler
//     after Leave succeeded.
//   - No client gets ErrLeft. k8s.io/apiserver treats it as an error of the storage, and writes
//     an answer that Serve discards, header included. It is in no metric, log or audit event.
//   - A handler outside of Serve may still be faster: the timeout handler answers
//     when the request's time is over. That answer is final; the functions given to
//     Finish get a ResponseWriter that discards.
//   - The functions given to Finish are called exactly once, by Doorway or by Finish.
//   - At most as many requests wait in a Room as it was made for. Others, and requests that
//     did not come through a Doorway, cannot leave and wait where they are.
//   - The audit log has one event for the end of a request, written with its answer. k8s.io/apiserver
//     writes an event when its handlers return; Room.AuditBackend drops it. It recognizes the event by a
//     mark that is private to the Room, so that nothing a client or a webhook sends can
//     keep an event out of the log.
//   - Nothing depends on the verbosity of the log. With -v=3 k8s.io/apiserver logs a request
//     that has left when its handlers return, without a code and with "left"; a second line
//     follows with the answer.
//   - A panic in a handler reaches the server; the place in the Room is given back.
package waiting
