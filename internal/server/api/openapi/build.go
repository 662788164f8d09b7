package openapi

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
)

const (
	title      = "Kubernetes"
	token      = "BearerToken"
	tokenUsage = "Bearer Token authentication"
)

func (h *Handler) info() *spec.Info {
	return &spec.Info{InfoProps: spec.InfoProps{Title: title, Version: h.options.Version}}
}

func (h *Handler) buildVersion(gv schema.GroupVersion, endpoints []*resources.Endpoint) ([]byte, error) {
	routes, err := operations(gv, endpoints)
	if err != nil {
		return nil, err
	}
	return h.build3(gv, routes)
}

// build3 builds the v3 document of some routes.
func (h *Handler) build3(gv schema.GroupVersion, routes []common.RouteContainer) ([]byte, error) {
	var data []byte
	err := h.options.Models.use(func(d *definitions) error {
		document, err := builder3.BuildOpenAPISpecFromRoutes(routes, &common.OpenAPIV3Config{
			Info: h.info(),
			CommonResponses: map[int]*spec3.Response{
				401: {ResponseProps: spec3.ResponseProps{Description: "Unauthorized"}},
			},
			DefaultResponse:                &spec3.Response{ResponseProps: spec3.ResponseProps{Description: "Default Response."}},
			GetOperationIDAndTagsFromRoute: operationID,
			GetDefinitionName:              only(gv, d.name),
			Definitions:                    d.byType,
			SecuritySchemes: spec3.SecuritySchemes{token: {SecuritySchemeProps: spec3.SecuritySchemeProps{
				Type: "apiKey", Name: "authorization", In: "header", Description: tokenUsage,
			}}},
			DefaultSecurity: []map[string][]string{{token: {}}},
		})
		if err != nil {
			return err
		}
		data, err = document.MarshalJSON()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("OpenAPI v3 of %s: %w", gv, err)
	}
	return data, nil
}

// everywhere lists the definitions whose kinds are in every group.
var everywhere = map[string]bool{
	"io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions": true,
	"io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent":    true,
}

// only returns a function that names definitions for the document of one group version. For a
// kind that is in every group, the function names only the kinds of gv and of the core group.
func only(gv schema.GroupVersion, name func(string) (string, spec.Extensions)) func(string) (string, spec.Extensions) {
	const key = "x-kubernetes-group-version-kind"
	return func(path string) (string, spec.Extensions) {
		short, extensions := name(path)
		if !everywhere[short] {
			return short, extensions
		}
		all, _ := extensions[key].([]any)
		var kept []any
		for _, kind := range all {
			k := kind.(map[string]any)
			group, version := k["group"], k["version"]
			if (group == gv.Group && version == gv.Version) || (group == "" && version == "v1") {
				kept = append(kept, kind)
			}
		}
		return short, spec.Extensions{key: kept}
	}
}

// buildCustom returns the v3 document of custom resources.
func (h *Handler) buildCustom(gv schema.GroupVersion) ([]byte, error) {
	document, err := h.options.Custom.OpenAPIV3(gv)
	if err != nil {
		return nil, err
	}
	if document == nil {
		return nil, fmt.Errorf("OpenAPI v3 of %s: the group version is no longer served", gv)
	}
	return document.MarshalJSON()
}

// build2 builds the v2 document of everything.
func (h *Handler) build2() ([]byte, error) {
	var routes []common.RouteContainer
	var groups []string
	order, byVersion := h.versions()
	for _, gv := range order {
		list, err := operations(gv, byVersion[gv])
		if err != nil {
			return nil, err
		}
		routes = append(routes, list...)
		groups = append(groups, gv.Group)
	}
	for _, list := range rootOperations(h.options.Endpoints[0].Scope.Serializer, groups) {
		routes = append(routes, list()...)
	}
	name := h.options.Models.namer()
	document, err := builder.BuildOpenAPISpecFromRoutes(routes, &common.Config{
		ProtocolList:                   []string{"https"},
		Info:                           h.info(),
		CommonResponses:                map[int]spec.Response{401: {ResponseProps: spec.ResponseProps{Description: "Unauthorized"}}},
		DefaultResponse:                &spec.Response{ResponseProps: spec.ResponseProps{Description: "Default Response."}},
		GetOperationIDAndTagsFromRoute: operationID,
		GetDefinitionName:              name,
		GetDefinitions:                 h.options.Models.definitions,
		SecurityDefinitions: &spec.SecurityDefinitions{token: &spec.SecurityScheme{SecuritySchemeProps: spec.SecuritySchemeProps{
			Type: "apiKey", Name: "authorization", In: "header", Description: tokenUsage,
		}}},
		DefaultSecurity: []map[string][]string{{token: {}}},
	})
	if err != nil {
		return nil, fmt.Errorf("OpenAPI v2: %w", err)
	}
	if h.options.Custom != nil {
		if document, err = h.options.Custom.OpenAPIV2(document); err != nil {
			return nil, fmt.Errorf("OpenAPI v2: %w", err)
		}
	}
	h.mu.Lock()
	remote := h.mu.remote.V2
	h.mu.Unlock()
	for _, other := range remote {
		if err := aggregator.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(document, other); err != nil {
			return nil, fmt.Errorf("OpenAPI v2 of an aggregated server: %w", err)
		}
	}
	// Documents of custom resources have definitions such as Scale, too. Definitions that differ
	// only in defaults would be added twice, as Scale and Scale_v2: the defaults are removed
	// here.
	document.Definitions = handler.PruneDefaults(document.Definitions)
	return document.MarshalJSON()
}
