package lint

var singleReplica = &Rule{
	ID: "single-replica", Level: Warning, Advice: "load-balancer-webhook",
	Reads:  []Part{Services, Workloads},
	Title:  "A webhook that fails closed has one replica",
	Why:    "Whenever that pod moves or is updated, what the webhook intercepts is rejected. The rule is not about webhooks for a program's own objects.",
	Fix:    "Run at least two replicas on different nodes, with a PodDisruptionBudget.",
	Fails:  hook(validating, anyPod+outside+"failurePolicy: Fail\n") + serviceWithPort("443") + server("policies", 1),
	Passes: hook(validating, anyPod+outside+"failurePolicy: Fail\n") + serviceWithPort("443") + server("policies", 2),
	check: func(p *pass) {
		for _, c := range p.clients() {
			name, inside := p.serviceOf(c.ClientConfig)
			if !inside || !c.closed || c.own {
				continue
			}
			total, nodes := 0, false
			behind := p.behind(name)
			for _, w := range behind {
				total += max(w.Replicas, 0)
				nodes = nodes || w.Replicas < 0
			}
			if len(behind) > 0 && !nodes && total < 2 {
				c.finds(p, p.rule.Level, c.under(), name.String(), "%s fails closed, and service %s has %d replica behind it (%s)", c.what, name, total, behind[0].Object)
			}
		}
	},
}
