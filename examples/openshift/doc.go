// Openshift replaces OpenShift's admission plugins that cannot be written as expressions: webhooks that count
// the namespaces of a user, check the restrictions of role bindings, and select security context constraints;
// and two initializers, which start a Jenkins for builds and enforce quotas over several namespaces.
//
// The other plugins are the policies in this folder. The README has the commands.
package main
