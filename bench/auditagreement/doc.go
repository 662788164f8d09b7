// Auditagreement sends random requests to a kube-apiserver with webhooks, policies, Pod Security and quotas. It
// compares the records that gatehouse trace creates from the audit log with the calls that the webhooks received, and
// with the answers. It does so at level RequestResponse and at level Metadata, and reads the webhook configurations
// and policies from the cluster, from a snapshot, or not at all. Then it sends the same requests to gatehouse, and
// compares the results of gatehouse blame for objects on both servers. It exits with 1 if any claim that a record
// marks as written is wrong, or more than 1 % of the claims that records mark as derived.
package main
