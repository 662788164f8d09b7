package expression

import "testing"

func TestLooksAtCaller(t *testing.T) {
	for expression, want := range map[string][2]bool{
		"object.metadata.name == 'a'":                                                     {false, false},
		"request.operation == 'CREATE' && request.namespace != ''":                        {false, false},
		"request.userInfo.username == 'a'":                                                {true, false},
		"'a' in request.userInfo.groups || request.name == ''":                            {true, false},
		"dyn(request).userInfo.username == 'a'":                                           {true, false},
		"has(request.userInfo)":                                                           {true, false},
		"['a'].exists(u, u == request.userInfo.username)":                                 {true, false},
		"authorizer.path('/healthz').check('get').allowed()":                              {false, true},
		"authorizer.requestResource.check('update').allowed()":                            {false, true},
		"request.userInfo.username == 'a' || authorizer.path('/').check('get').allowed()": {true, true},
		"object.": {false, false},
	} {
		if user, rights := LooksAtCaller(expression); user != want[0] || rights != want[1] {
			t.Errorf("%s: user %v, rights %v; want %v", expression, user, rights, want)
		}
	}
}

func TestLooksAtObjects(t *testing.T) {
	for expression, want := range map[string]bool{
		"object.metadata.name == 'a'":                        true,
		"has(oldObject.spec) && request.name == ''":          true,
		"[1].exists(i, object.spec.n == i)":                  true,
		"request.operation != 'DELETE'":                      false,
		"namespaceObject.metadata.name == 'object'":          false,
		"authorizer.group('').resource('pods').check('get')": false,
		"object.": false,
	} {
		if got := LooksAtObjects(expression); got != want {
			t.Errorf("%s: got %t, want %t", expression, got, want)
		}
	}
}
