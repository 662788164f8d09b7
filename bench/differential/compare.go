package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Values that differ between any two servers: identities, times, and random values.
var (
	uuids     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	times     = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	addresses = regexp.MustCompile(`\b10\.0\.0\.\d+`)
	drawn     = regexp.MustCompile(`\b(made-|kube-api-access-)[a-z0-9]{5}\b`)
	versions  = regexp.MustCompile(`(resource ?[vV]ersion[^0-9]{0,8})\d+`)
	ages      = regexp.MustCompile(`^(\d+[smh])+$`)
)

func normalizeText(s string) string {
	s = uuids.ReplaceAllString(s, "<uid>")
	s = times.ReplaceAllString(s, "<time>")
	s = addresses.ReplaceAllString(s, "<ip>")
	s = drawn.ReplaceAllString(s, "$1<drawn>")
	s = versions.ReplaceAllString(s, "$1<version>")
	return ages.ReplaceAllString(s, "<age>")
}

// normalize replaces such values by placeholders.
func normalize(v any) any {
	switch v := v.(type) {
	case string:
		return normalizeText(v)
	case []any:
		for i := range v {
			v[i] = normalize(v[i])
		}
	case map[string]any:
		for key, value := range v {
			text, isText := value.(string)
			number, isNumber := value.(float64)
			switch {
			case key == "resourceVersion" && isText && text != "" && text != "0":
				v[key] = "<version>"
			// Ports of services, and ports that the servers listen on.
			case (key == "nodePort" || key == "healthCheckNodePort" || key == "targetPort" || key == "port") && isNumber && number >= 30000:
				v[key] = "<port>"
			case key == "manager" && (text == "kube-apiserver" || text == "gatehouse"):
				v[key] = "<server>"
			case key == "serverAddress":
				v[key] = "<address>"
			case key == "managedFields":
				v[key] = normalize(keyed(value, "manager", "operation", "subresource", "apiVersion"))
			case key == "groups" || key == "resources":
				v[key] = normalize(keyed(value, "name"))
			case key == "paths":
				v[key] = normalize(members(value))
			case key == "resourceRules" || key == "nonResourceRules":
				v[key] = normalize(sorted(value))
			case key == "token" && isText && strings.Count(text, ".") == 2:
				v[key] = "<token>"
			default:
				v[key] = normalize(value)
			}
		}
	}
	return v
}

// keyed turns an unordered list of objects into an object; its keys are the values of the identifying fields. It
// returns any other value unchanged.
func keyed(list any, keys ...string) any {
	items, ok := list.([]any)
	if !ok {
		return list
	}
	out := make(map[string]any, len(items))
	for _, item := range items {
		object, ok := item.(map[string]any)
		if !ok {
			return list
		}
		var id strings.Builder
		for i, key := range keys {
			if i > 0 {
				id.WriteByte(' ')
			}
			fmt.Fprint(&id, text(object[key]))
		}
		out[strings.NewReplacer("kube-apiserver", "<server>", "gatehouse ", "<server> ").Replace(strings.TrimSpace(id.String()))] = object
	}
	return out
}

// members turns an unordered list of strings into an object with the strings as keys. It returns any other value
// unchanged.
func members(list any) any {
	items, ok := list.([]any)
	if !ok {
		return list
	}
	out := make(map[string]any, len(items))
	for _, item := range items {
		member, ok := item.(string)
		if !ok {
			return list
		}
		out[member] = true
	}
	return out
}

// sorted sorts a list whose order is random.
func sorted(list any) any {
	items, ok := list.([]any)
	if !ok {
		return list
	}
	slices.SortFunc(items, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return items
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// difference is one place where two answers differ.
type difference struct {
	// Case and Step identify the request, Path the place in the answer.
	Case, Step, Path string
	// Kube and Gatehouse are the values; nil means that there is no value. If releases are compared, they are the values
	// of the older and the newer one.
	Kube, Gatehouse any
	// Newer is the index of the newer release, and Codes has the codes of both answers. They are zero if no releases
	// are compared.
	Newer int
	Codes [2]int
}

// compare lists the differences between two answers.
func compare(kube, gatehouse answer) []difference {
	var out []difference
	if kube.Code != gatehouse.Code {
		out = append(out, difference{Path: "code", Kube: kube.Code, Gatehouse: gatehouse.Code})
	}
	if kube.ContentType != gatehouse.ContentType {
		out = append(out, difference{Path: "content type", Kube: kube.ContentType, Gatehouse: gatehouse.ContentType})
	}
	if !slices.Equal(kube.Warnings, gatehouse.Warnings) {
		out = append(out, difference{Path: "warnings", Kube: kube.Warnings, Gatehouse: gatehouse.Warnings})
	}
	if !slices.Equal(kube.Flow, gatehouse.Flow) {
		out = append(out, difference{Path: "flow", Kube: kube.Flow, Gatehouse: gatehouse.Flow})
	}
	if kube.Audit != nil || gatehouse.Audit != nil {
		out = walk(out, "audit", kube.Audit, gatehouse.Audit)
	}
	return walk(out, "body", kube.Body, gatehouse.Body)
}

func walk(out []difference, path string, kube, gatehouse any) []difference {
	switch k := kube.(type) {
	case map[string]any:
		g, ok := gatehouse.(map[string]any)
		if !ok {
			break
		}
		keys := map[string]any{}
		maps.Copy(keys, k)
		maps.Copy(keys, g)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			out = walk(out, path+"."+key, k[key], g[key])
		}
		return out
	case []any:
		g, ok := gatehouse.([]any)
		if !ok || len(g) != len(k) {
			break
		}
		for i := range k {
			out = walk(out, fmt.Sprintf("%s[%d]", path, i), k[i], g[i])
		}
		return out
	default:
		if _, isMap := gatehouse.(map[string]any); isMap {
			break
		}
		if _, isList := gatehouse.([]any); isList {
			break
		}
		if kube == gatehouse {
			return out
		}
	}
	return append(out, difference{Path: path, Kube: kube, Gatehouse: gatehouse})
}
