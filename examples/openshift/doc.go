// Openshift runs what OpenShift's admission plugins do and expressions cannot: webhooks that
// count the namespaces of a user, look at all restrictions of role bindings, and choose among
// security context constraints, and two initializers, which start a Jenkins for builds and
// hold pods to quotas of several namespaces.
//
// The other plugins are the policies in this folder. The README says what to type.
package main
