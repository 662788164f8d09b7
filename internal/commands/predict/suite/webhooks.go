package suite

import (
	"encoding/json"
	"regexp"
	"time"

	yamlv3 "go.yaml.in/yaml/v3"
)

// answers reads the webhooks' answers of a test.
func (p *parser) answers(n *yamlv3.Node, what string) []answer {
	var list []answer
	p.elements(n, what, func(n *yamlv3.Node) {
		a := answer{line: p.line(n)}
		response, status := map[string]any{}, map[string]any{}
		delay := ""
		p.fields(n, "an answer", map[string]field{
			"webhook":          p.text(&a.webhook, "webhook"),
			"allowed":          put(response, "allowed", p.flag),
			"message":          put(status, "message", p.text),
			"reason":           put(status, "reason", p.text),
			"code":             put(status, "code", p.number),
			"warnings":         put(response, "warnings", p.texts),
			"auditAnnotations": put(response, "auditAnnotations", func(into *map[string]string, what string) field { return p.textMap(into, what, "") }),
			"patch": func(n *yamlv3.Node) {
				list, ok := p.value(n).([]any)
				data, err := json.Marshal(list)
				if !ok || err != nil {
					p.fail(n, "patch is not a list of operations of a JSON patch")
				}
				response["patch"], response["patchType"] = data, "JSONPatch"
			},
			"response": func(n *yamlv3.Node) { a.response = p.decoder.object(n, "response") },
			"status":   p.number(&a.status, "status"),
			"body":     p.text(&a.body, "body"),
			"delay":    p.text(&delay, "delay"),
			"refuse":   p.flag(&a.refuse, "refuse"),
		})
		if a.webhook == "" {
			p.fail(n, "an answer names no webhook")
		}
		if delay != "" {
			var err error
			if a.delay, err = time.ParseDuration(delay); err != nil || a.delay < 0 || a.delay > time.Minute {
				p.fail(n, "delay %q is not a time such as 3s, of a minute at most", delay)
			}
		}
		if len(status) > 0 {
			response["status"] = status
		}
		switch {
		case a.response != nil && len(response) > 0:
			p.fail(n, "an answer has a response, or allowed, message, code, reason, patch, warnings and auditAnnotations, and not both")
		case a.response == nil && len(response) > 0:
			if _, ok := response["allowed"]; !ok {
				response["allowed"] = true
			}
			a.response = response
		}
		list = append(list, a)
	})
	return list
}

// put reads a field of a webhook's response into the response.
func put[T any](into map[string]any, name string, read func(into *T, what string) field) field {
	return func(n *yamlv3.Node) {
		var value T
		read(&value, name)(n)
		into[name] = value
	}
}

// program is a webhook that is started for the tests of a file.
type program struct {
	line    int
	command []string
	// service is the service of the webhook in the registrations, as NAMESPACE/NAME.
	service string
	env     map[string]string
}

// programs reads the programs to start.
func (p *parser) programs(n *yamlv3.Node) []program {
	var list []program
	p.elements(n, "programs", func(n *yamlv3.Node) {
		one := program{line: p.line(n)}
		p.fields(n, "a program", map[string]field{
			"command": p.texts(&one.command, "command"),
			"service": p.text(&one.service, "service"),
			"env":     p.textMap(&one.env, "env", ""),
		})
		if len(one.command) == 0 {
			p.fail(n, "a program has no command")
		}
		if !serviceName.MatchString(one.service) {
			p.fail(n, "service %q of a program is not NAMESPACE/NAME", one.service)
		}
		list = append(list, one)
	})
	return list
}

var serviceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z]([-a-z0-9]*[a-z0-9])?$`)
