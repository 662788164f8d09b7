package trace

import "strconv"

// Fields are the fields of a Record that a field selector may name, besides metadata.name and
// metadata.namespace.
//
// auditID is the ID of the request in the audit log and in the log. webhook is the name of a webhook
// that was called, or of an initializer that the object was given or that wrote it; configuration is
// the name of its registration object; plugin is a plugin that did something. response is the status
// code of the response, its class as in 4xx, or the reason of an error. resource is the plural,
// or the plural and the group as in deployments.apps. name is the name of the request's object. An =
// is true when one of several values is equal, a != when none is.
var Fields = []string{"auditID", "webhook", "configuration", "plugin", "outcome", "response", "user", "operation", "resource", "name", "dryRun"}

// Field returns the values of a field, as Fields describes it.
func (r *Record) Field(field string) []string {
	switch q := &r.Request; field {
	case "auditID":
		return []string{r.AuditID}
	case "outcome":
		return []string{string(r.Outcome)}
	case "response":
		return r.responses()
	case "user":
		return []string{q.User}
	case "operation":
		return []string{q.Operation}
	case "resource":
		return []string{q.Resource.Resource, q.Resource.Resource + "." + q.Resource.Group}
	case "name":
		return []string{q.Name}
	case "dryRun":
		return []string{strconv.FormatBool(q.DryRun)}
	}
	var list []string
	for step := range r.Each() {
		if field == "plugin" {
			list = append(list, step.Plugin)
		}
		if field == "webhook" {
			list = append(list, step.Pending...)
			list = append(list, step.Initializing...)
		}
		for part := range step.Parts() {
			switch {
			case part.Call == nil:
			case field == "webhook":
				list = append(list, part.Call.Webhook.Name)
			case field == "configuration":
				list = append(list, part.Call.Webhook.Configuration)
			}
		}
	}
	return list
}
