// Package userpatch applies the JSON patches and JSON merge patches of requests. Results and errors equal the results
// and errors of k8s.io/apiserver byte for byte. k8s.io/apiserver uses gopkg.in/evanphx/json-patch.v4, which copies and
// scans a nested value again at each level, and copies a whole list for each operation. Here, the cost
// is linear in the lengths of the patch and the object, and ends with the context of the request (S27.11).
//
// Both forms of patches work on text: a value that the patch does not reach keeps its spelling, and its
// duplicate members, for which the later strict decoding reports an error. The patches of webhooks work on decoded
// values, and compare those (S5.7): package review has them.
package userpatch
