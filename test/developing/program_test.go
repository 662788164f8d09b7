package developing

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
)

// program is a webhook that runs until it is killed. how selects a defect.
func program(how string) {
	if how == "ends" {
		fmt.Println("unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined")
		os.Exit(3)
	}
	if how == "child" {
		// A child process of the program ends with it.
		if err := exec.Command("sleep", "1000").Start(); err != nil {
			panic(err)
		}
	}
	mux := http.NewServeMux()
	path := "/validate"
	if how == "elsewhere" {
		path = "/check"
	}
	mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			APIVersion, Kind string
			Request          struct {
				UID    string
				Object json.RawMessage
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			panic(err)
		}
		fmt.Printf("asked by %s about %s\n", in.Request.UID, in.Request.Object)
		response := map[string]any{"uid": in.Request.UID, "allowed": !strings.Contains(string(in.Request.Object), "forbidden")}
		switch how {
		case "no uid":
			delete(response, "uid")
		case "old version":
			in.APIVersion = "admission.k8s.io/v1beta1"
		case "no review":
			in.Kind, response = "", nil
		}
		w.Header().Set("Content-Type", "application/json")
		answer := map[string]any{"apiVersion": in.APIVersion, "kind": in.Kind}
		if response != nil {
			answer["response"] = response
		}
		_ = json.NewEncoder(w).Encode(answer)
	})
	fmt.Printf("program\tstarts with \x1b[31mKUBECONFIG=%s\n", os.Getenv("KUBECONFIG"))
	server := &http.Server{Addr: "localhost:" + os.Getenv("PORT"), Handler: mux, TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}}
	files := os.Getenv("CERT_DIR")
	switch how {
	case "other port":
		server.Addr = "localhost:" + os.Getenv("OTHER_PORT")
	case "http":
		panic(server.ListenAndServe())
	case "other name":
		files = os.Getenv("OTHER_CERT_DIR")
	}
	panic(server.ListenAndServeTLS(files+"/tls.crt", files+"/tls.key"))
}
