package trace

import "strconv"

// Fields are the fields of a Record that a field selector may name, besides metadata.name and
// metadata.namespace.
//
// auditID is the ID of the request in the audit log and in the log. webhook is the name of a called
// webhook, or of an initializer that was given to the object or wrote it; configuration is the name
// of a called webhook's configuration; plugin is the name of a plugin with a step. response is the
// status code of the response, its class such as 4xx, or the reason of an error. resource is the
// plural, or the plural and the group such as deployments.apps. name is the name of the request's
// object. For a field with several values, = is true if one value is equal, and != if none is.
var Fields = []string{"auditID", "webhook", "configuration", "plugin", "outcome", "response", "user", "operation", "resource", "name", "dryRun"}

// Field returns the values of a field; see Fields.
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
