package controllers

import (
	"context"
	"time"

	certificatesinformers "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/certificates/approver"
	"k8s.io/kubernetes/pkg/controller/certificates/cleaner"
	"k8s.io/kubernetes/pkg/controller/certificates/signer"
)

const (
	certificateWorkers = 5
	// signedFor is the longest lifetime of a certificate.
	signedFor = 365 * 24 * time.Hour
)

// approveRequests approves the CertificateSigningRequests of kubelets for themselves.
func approveRequests(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	c := approver.NewCSRApprovingController(ctx, client, t.informers.Certificates().V1().CertificateSigningRequests())
	return func(ctx context.Context) { c.Run(ctx, certificateWorkers) }, nil
}

// signRequests signs the approved requests for the signers of Kubernetes, with the server's own CA.
func signRequests(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	informer := t.informers.Certificates().V1().CertificateSigningRequests()
	var signers []func(context.Context)
	for _, of := range []func(context.Context, kubernetes.Interface, certificatesinformers.CertificateSigningRequestInformer, string, string, time.Duration) (*signer.CSRSigningController, error){
		signer.NewKubeletServingCSRSigningController, signer.NewKubeletClientCSRSigningController,
		signer.NewKubeAPIServerClientCSRSigningController, signer.NewLegacyUnknownCSRSigningController,
	} {
		c, err := of(ctx, client, informer, t.options.CAFile, t.options.CAKeyFile, signedFor)
		if err != nil {
			return nil, err
		}
		signers = append(signers, func(ctx context.Context) { c.Run(ctx, certificateWorkers) })
	}
	return together(signers...), nil
}

// cleanRequests deletes old CertificateSigningRequests.
func cleanRequests(_ context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	c := cleaner.NewCSRCleanerController(client.CertificatesV1().CertificateSigningRequests(), t.informers.Certificates().V1().CertificateSigningRequests())
	return func(ctx context.Context) { c.Run(ctx, 1) }, nil
}
