// Auditagreement makes random requests to a kube-apiserver with webhooks, policies, Pod Security and quotas,
// and compares what gatehouse trace makes of its audit log with what the webhooks got, and with the answers:
// at level RequestResponse and at level Metadata, without registrations, with those of the cluster and with those
// of a snapshot. Then it makes the same requests to gatehouse, and compares what gatehouse blame says of objects
// on both. It exits with 1 if something is not so that a record calls written, or if more than 1 % is wrong of what
// records call derived.
package main
