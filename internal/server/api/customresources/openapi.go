package customresources

import (
	"fmt"
	"maps"

	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/openapi"
)

// OpenAPIV3 returns the document of a group version, nil if no established CRD is served in it.
// Each call builds the document; the caller must not change it.
func (s *Server) OpenAPIV3(gv schema.GroupVersion) (*spec3.OpenAPI, error) {
	var documents []*spec3.OpenAPI
	err := s.eachServed(func(d *definition, version string) error {
		if d.groupVersion(version) != gv {
			return nil
		}
		document, err := d.document(version)
		documents = append(documents, document)
		return err
	})
	if err != nil || len(documents) == 0 {
		return nil, err
	}
	document, err := builder.MergeSpecsV3(documents...)
	if err == nil && s.options.LikeTheRelease && document.Components.Schemas[objectMeta] != nil {
		// The schema was made for this document.
		delete(document.Components.Schemas[objectMeta].Properties, "initializers")
	}
	return document, err
}

// OpenAPIV2 returns a copy of static with the served CRDs added. It builds the documents of all
// CRDs, which takes some milliseconds each. static is not changed.
func (s *Server) OpenAPIV2(static *spec.Swagger) (*spec.Swagger, error) {
	var documents []*spec.Swagger
	err := s.eachServed(func(d *definition, version string) error {
		crd, err := unpacked(d.crd)
		if err != nil {
			return err
		}
		document, err := builder.BuildOpenAPIV2(crd, version, builder.Options{V2: true, IncludeSelectableFields: true})
		if err != nil {
			return fmt.Errorf("OpenAPI v2 of %s in version %s: %w", d.crd.Name, version, err)
		}
		if metadata, ok := document.Definitions[objectMeta]; ok && !s.options.LikeTheRelease {
			document.Definitions[objectMeta] = withInitializers(metadata)
		}
		documents = append(documents, document)
		return nil
	})
	if err != nil || len(documents) == 0 {
		return static, err
	}
	return builder.MergeSpecs(static, documents...)
}

// document builds the OpenAPI v3 document of a CRD in one version.
func (d *definition) document(version string) (*spec3.OpenAPI, error) {
	crd, err := d.whole.get()
	if err != nil {
		return nil, err
	}
	document, err := builder.BuildOpenAPIV3(crd, version, builder.Options{IncludeSelectableFields: true})
	if err != nil {
		return nil, fmt.Errorf("OpenAPI v3 of %s in version %s: %w", crd.Name, version, err)
	}
	if metadata, ok := document.Components.Schemas[objectMeta]; ok {
		extended := withInitializers(*metadata)
		document.Components.Schemas[objectMeta] = &extended
	}
	return document, nil
}

// withInitializers returns metadata's schema with the additional field. The maps of the argument
// are shared by all documents and not changed.
func withInitializers(metadata spec.Schema) spec.Schema {
	metadata.Properties = maps.Clone(metadata.Properties)
	metadata.Properties["initializers"] = openapi.InitializersSchema()
	return metadata
}
