package main

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"

	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// serveImagePolicy serves a webhook of the API imagepolicy.k8s.io and writes a kubeconfig for it. The webhook decides
// by the name of the image: bad, silent, broken and audited have a special meaning.
func serveImagePolicy(kubeconfig string) (path string, stop func(), err error) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review imagepolicyv1alpha1.ImageReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Status.Allowed = true
		for _, c := range review.Spec.Containers {
			switch c.Image {
			case "bad":
				review.Status.Allowed, review.Status.Reason = false, "bad is not for us"
			case "silent":
				review.Status.Allowed = false
			case "broken":
				http.Error(w, "broken", http.StatusBadRequest)
				return
			case "audited":
				review.Status.AuditAnnotations = map[string]string{"seen": review.Spec.Annotations["mine.image-policy.k8s.io/ticket"]}
			}
		}
		w.Header().Set("Content-Type", "application/json")
		// An error means that the client has disconnected.
		_ = json.NewEncoder(w).Encode(&review)
	}))
	config := clientcmdapi.NewConfig()
	config.Clusters["images"] = &clientcmdapi.Cluster{
		Server:                   server.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	config.AuthInfos["images"] = &clientcmdapi.AuthInfo{}
	config.Contexts["images"] = &clientcmdapi.Context{Cluster: "images", AuthInfo: "images"}
	config.CurrentContext = "images"
	data, err := clientcmd.Write(*config)
	if err == nil {
		err = os.WriteFile(kubeconfig, data, 0o600)
	}
	if err != nil {
		server.Close()
		return "", nil, err
	}
	return kubeconfig, server.Close, nil
}
