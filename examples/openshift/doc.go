// Openshift runs what OpenShift's admission plugins do and expressions cannot: a webhook that
// counts the namespaces of a user, and two initializers, which start a Jenkins for builds and
// hold pods to quotas of several namespaces.
//
// The other plugins are the policies in this folder. The README says what to type.
package main
