package clustersnapshot

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/features"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/kit/aliases"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// The type of a snapshot file.
const (
	APIVersion = "gatehouse.dev/v1alpha1"
	Kind       = "ClusterSnapshot"
)

// Cluster is a snapshot of the objects of a cluster that affect admission.
type Cluster struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Cluster    About  `json:"cluster"`
	// Served lists the kinds that the cluster serves, by group and version; empty if unknown.
	Served []Served `json:"served,omitempty"`
	// Unread lists the resources that the caller may not read.
	Unread []Unread `json:"unread,omitempty"`
	// Items are the objects, sorted, without the fields that every server sets.
	Items []map[string]any `json:"items"`
}

// About describes a cluster.
type About struct {
	// KubernetesVersion is the version reported by the cluster at /version.
	KubernetesVersion string `json:"kubernetesVersion"`
	// JudgesAs is the release that the cluster behaves as, if its API server emulates another release, or the release
	// that checks are to emulate; empty for KubernetesVersion.
	JudgesAs string `json:"judgesAs,omitempty"`
	// FeatureGates are the feature gates of an API server of the cluster, as far as its metrics show them.
	FeatureGates map[string]bool `json:"featureGates,omitempty"`
	// ServiceRange is the range of the cluster IPs of services; empty if unknown.
	ServiceRange string `json:"serviceRange,omitempty"`
}

// Server returns the known properties of the API server. A feature gate whose kind is served is on, also if the metrics
// of the server do not show it.
func (s *Cluster) Server() emulation.Cluster {
	known := emulation.Cluster{Version: cmp.Or(s.Cluster.JudgesAs, s.Cluster.KubernetesVersion), Gates: s.Cluster.FeatureGates}
	for _, v := range s.Served {
		if _, shown := known.Gates[string(features.MutatingAdmissionPolicy)]; !shown && slices.Contains(v.Kinds, string(features.MutatingAdmissionPolicy)) {
			known.Gates = maps.Clone(known.Gates)
			if known.Gates == nil {
				known.Gates = map[string]bool{}
			}
			known.Gates[string(features.MutatingAdmissionPolicy)] = true
		}
	}
	return known
}

// Served lists the kinds of a group and version.
type Served struct {
	APIVersion string   `json:"apiVersion"`
	Kinds      []string `json:"kinds"`
}

// Unread is a resource that could not be read.
type Unread struct {
	// Resource is PLURAL or PLURAL.GROUP.
	Resource string `json:"resource"`
	Reason   string `json:"reason"`
	// Namespaces lists the namespaces in which it could be read.
	Namespaces []string `json:"namespaces,omitempty"`
}

// ServiceRange returns the range of cluster IPs; empty if unknown.
func (s *Cluster) ServiceRange() string { return s.Cluster.ServiceRange }

// KnowsKinds reports whether the snapshot lists the kinds that the cluster serves.
func (s *Cluster) KnowsKinds() bool { return len(s.Served) > 0 }

// Gatehouse reports whether the snapshot shows that the cluster's server is Gatehouse.
func (s *Cluster) Gatehouse() bool {
	return s.Serves(schema.GroupVersionKind{Group: "gatehouse.dev", Version: "v1alpha1", Kind: "AdmissionExplanation"})
}

// Serves reports whether the cluster serves a kind.
func (s *Cluster) Serves(kind schema.GroupVersionKind) bool {
	i := slices.IndexFunc(s.Served, func(v Served) bool { return v.APIVersion == kind.GroupVersion().String() })
	return i >= 0 && slices.Contains(s.Served[i].Kinds, kind.Kind)
}

// Missing returns the unread part of a resource; nil if the resource was read completely.
func (s *Cluster) Missing(resource schema.GroupResource) *Unread {
	i := slices.IndexFunc(s.Unread, func(u Unread) bool { return u.Resource == resource.String() })
	if i < 0 {
		return nil
	}
	return &s.Unread[i]
}

// Objects returns the items; none for a nil snapshot.
func (s *Cluster) Objects() []*unstructured.Unstructured {
	if s == nil {
		return nil
	}
	list := make([]*unstructured.Unstructured, len(s.Items))
	for i := range s.Items {
		list[i] = &unstructured.Unstructured{Object: s.Items[i]}
	}
	return list
}

// Encode returns the snapshot as JSON, or as YAML.
func (s *Cluster) Encode(asJSON bool) ([]byte, error) {
	if !asJSON {
		return yaml.Marshal(s)
	}
	data, err := json.MarshalIndent(s, "", "    ")
	return append(data, '\n'), err
}

// Write writes the snapshot to a file: JSON if the name ends in .json, else YAML. Only its owner may read the file,
// because it contains the RBAC of the cluster.
func (s *Cluster) Write(file string) error {
	data, err := s.Encode(filepath.Ext(file) == ".json")
	if err != nil {
		return err
	}
	return files.ReplaceOutput(file, data, 0o600)
}

// Read reads a snapshot from a file. The error names the file.
func Read(file string) (*Cluster, error) {
	data, err := files.ReadArgument(file, files.Objects)
	if err != nil {
		return nil, err
	}
	if trimmed := bytes.TrimSpace(data); len(trimmed) == 0 || trimmed[0] != '{' {
		if err = aliases.Check(data, files.Objects); err == nil {
			data, err = yaml.YAMLToJSON(data)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	var of struct{ APIVersion, Kind string }
	if err := json.Unmarshal(data, &of); err != nil {
		return nil, fmt.Errorf("%s: not a snapshot of a cluster: %w", file, err)
	}
	if of.Kind != Kind {
		return nil, fmt.Errorf("%s: not a snapshot of a cluster, but of kind %q: make one with 'gatehouse snapshot -o FILE'", file, of.Kind)
	}
	if of.APIVersion != APIVersion {
		return nil, fmt.Errorf("%s: a snapshot of version %q, made by another release of gatehouse; this one reads %q: make it again with 'gatehouse snapshot -o FILE'", file, of.APIVersion, APIVersion)
	}
	s := &Cluster{}
	decoder := json.NewDecoder(bytes.NewReader(data))
	// ConvertMapNumbers below converts the numbers to the types that the decoders of the API use.
	decoder.UseNumber()
	if err := decoder.Decode(s); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for i := range s.Items {
		if err := utiljson.ConvertMapNumbers(s.Items[i], 0); err != nil {
			return nil, fmt.Errorf("%s: items[%d]: %w", file, i, err)
		}
		u := unstructured.Unstructured{Object: s.Items[i]}
		if u.GetAPIVersion() == "" || u.GetKind() == "" || u.GetName() == "" {
			return nil, fmt.Errorf("%s: items[%d]: apiVersion, kind and metadata.name are needed", file, i)
		}
	}
	return s, nil
}
