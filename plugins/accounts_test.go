package plugins_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/plugins"
)

// S9.16: a pod is admitted at once if no controller has created the account of its namespace yet: the plugin
// creates it. Dry runs and plans do not create it.
func TestAccountsAreMadeForPodsThatComeFirst(t *testing.T) {
	interfaces := apiadmission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)
	request := func(pod *api.Pod, dryRun bool) apiadmission.Attributes {
		return apiadmission.NewAttributesRecord(pod, nil, api.Kind("Pod").WithVersion("v1"), "ns", "p", api.Resource("pods").WithVersion("v1"), "",
			apiadmission.Create, &metav1.CreateOptions{}, dryRun, nil)
	}
	admit := func(p apiadmission.Interface, a apiadmission.Attributes) error {
		return through(t.Context(), p, a, interfaces)
	}
	predict := func(p apiadmission.Interface, a apiadmission.Attributes) error {
		return p.(admission.Predictor).Predict(t.Context(), registration.MutatingPass, a, interfaces)
	}
	refused := errors.New("a webhook says no")
	for _, tt := range []struct {
		name string
		do   func(apiadmission.Interface, apiadmission.Attributes) error
		// account is the service account of the pod.
		account string
		dryRun  bool
		// fails is the error of creating the account. It has no effect without MakeAccount.
		fails  error
		nobody bool
		makes  bool
		// refused is part of the reason, empty if the pod is admitted; waits is the least duration.
		refused string
		waits   time.Duration
	}{
		{name: "a pod", do: admit, makes: true},
		{name: "a pod that names it", do: admit, account: "default", makes: true},
		{name: "a pod with another account", do: admit, account: "other", refused: `serviceaccount "other" not found`},
		{name: "an account that cannot be made", do: admit, fails: refused, makes: true, refused: "error looking up service account ns/default: a webhook says no"},
		{name: "a dry run", do: admit, dryRun: true},
		{name: "a prediction", do: predict},
		{name: "a prediction for another account", do: predict, account: "other", refused: `serviceaccount "other" not found`},
		{name: "without what makes accounts", do: admit, nobody: true, refused: `serviceaccount "default" not found`, waits: 900 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, made := onCluster(t, ""), 0
				if !tt.nobody {
					o.MakeAccount = func(_ context.Context, namespace string) (*corev1.ServiceAccount, error) {
						made++
						return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}, tt.fails
					}
				}
				p, err := plugins.New("ServiceAccount", o)
				if err != nil {
					t.Fatal(err)
				}
				pod := &api.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: api.PodSpec{ServiceAccountName: tt.account}}
				began := time.Now()
				err = tt.do(p, request(pod, tt.dryRun))
				waited := time.Since(began)
				switch {
				case tt.refused == "" && err != nil:
					t.Fatal(err)
				case tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused)):
					t.Fatalf("error %v, want one with %q", err, tt.refused)
				case tt.refused == "" && pod.Spec.ServiceAccountName != "default":
					t.Error("the pod has no account")
				}
				if waited < tt.waits || tt.waits == 0 && waited > 0 {
					t.Errorf("it took %s, want %s", waited, tt.waits)
				}
				if (made > 0) != tt.makes {
					t.Errorf("the account was made %d times, and is to be made: %v", made, tt.makes)
				}
			})
		})
	}
}
