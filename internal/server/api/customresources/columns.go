package customresources

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// age is the only column, besides the name, in tables of custom objects without columns of their
// own.
var age = apiextensionsv1.CustomResourceColumnDefinition{
	Name:        "Age",
	Type:        "date",
	Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
	JSONPath:    ".metadata.creationTimestamp",
}

func columns(v *apiextensionsv1.CustomResourceDefinitionVersion) []apiextensionsv1.CustomResourceColumnDefinition {
	if len(v.AdditionalPrinterColumns) > 0 {
		return v.AdditionalPrinterColumns
	}
	return []apiextensionsv1.CustomResourceColumnDefinition{age}
}

// scaleColumns are the columns of the scale subresource.
var scaleColumns = []apiextensionsv1.CustomResourceColumnDefinition{
	{Name: "Desired", Type: "integer", Description: "Number of desired replicas", JSONPath: ".spec.replicas"},
	{Name: "Available", Type: "integer", Description: "Number of actual replicas", JSONPath: ".status.replicas"},
	age,
}
