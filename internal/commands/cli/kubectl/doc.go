// Package kubectl is the command gatehouse kubectl: the real kubectl, which owns the process from then on, its exit
// code included. By default it uses the kubeconfig of the server that gatehouse serve runs.
package kubectl
