package main

import "fmt"

// pod returns a pod in a namespace, with fields of its container and of its spec.
func pod(namespace, container, spec string) string {
	return named("p", namespace, container, spec)
}

func named(name, namespace, container, spec string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s}, spec: {containers: [{name: c%s}]%s}}",
		name, namespace, comma(container), comma(spec))
}

func comma(fields string) string {
	if fields == "" {
		return ""
	}
	return ", " + fields
}

const image = "image: registry.example.com/app"

// examples are the requests of each plugin. setup is stored before.
var examples = []struct {
	plugin, setup string
	writes        []write
}{
	{
		plugin: "OriginPodNodeEnvironment",
		setup: `
apiVersion: v1
kind: Namespace
metadata: {name: east, annotations: {openshift.io/node-selector: "region=east, type=batch"}}
---
apiVersion: v1
kind: Namespace
metadata: {name: anywhere, annotations: {openshift.io/node-selector: ""}}
---
apiVersion: v1
kind: Namespace
metadata: {name: plain}
`,
		writes: []write{
			{name: "a pod gets the selector of its project", object: pod("east", image, ""), want: `{spec: {nodeSelector: {region: east, type: batch}}}`},
			{name: "in addition to its own", object: pod("east", image, "nodeSelector: {disk: ssd, region: east}"),
				want: `{spec: {nodeSelector: {disk: ssd, region: east, type: batch}}}`},
			{name: "which must not contradict", object: pod("east", image, "nodeSelector: {region: west}"),
				denied: "the node selector of the pod contradicts that of its project: region=east, type=batch"},
			{name: "without an annotation the default counts", object: pod("plain", image, ""), want: `{spec: {nodeSelector: {type: user-node}}}`},
			{name: "for administrators, too", as: "admin", object: pod("plain", image, "nodeSelector: {type: gpu-node}"),
				denied: "the node selector of the pod contradicts that of its project: type=user-node"},
			{name: "an empty annotation is none", object: pod("anywhere", image, ""), want: `{spec: {nodeSelector: null}}`},
			{name: "and leaves pods alone", object: pod("anywhere", image, "nodeSelector: {type: gpu-node}"), want: `{spec: {nodeSelector: {type: gpu-node}}}`},
		},
	},
	{
		plugin: "ClusterResourceOverride",
		setup: `
apiVersion: v1
kind: Namespace
metadata: {name: override, labels: {clusterresourceoverrides.admission.autoscaling.openshift.io/enabled: "true"}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: limits, namespace: override}
spec: {limits: [{type: Container, default: {memory: 512Mi}}]}
`,
		writes: []write{
			{name: "all follows from the limit of memory", object: pod("override", image+", resources: {limits: {memory: 1Gi, cpu: 7}, requests: {cpu: 5}}", ""),
				want: `{spec: {containers: [{resources: {limits: {memory: 1Gi, cpu: "2"}, requests: {memory: 512Mi, cpu: 500m}}}]}}`},
			{name: "in init containers, too", object: pod("override", image, "initContainers: [{name: i, image: registry.example.com/app, resources: {limits: {memory: 2Gi}}}]"),
				want: `{spec: {initContainers: [{resources: {limits: {memory: 2Gi, cpu: "4"}, requests: {memory: 1Gi, cpu: "1"}}}]}}`},
			{name: "the limit may be that of the LimitRange", object: pod("override", image, ""),
				want: `{spec: {containers: [{resources: {limits: {memory: 512Mi, cpu: "1"}, requests: {memory: 256Mi, cpu: 250m}}}]}}`},
			{name: "nothing is requested less than 1Mi and 1m", object: pod("override", image+", resources: {limits: {memory: 1Mi}}", ""),
				want: `{spec: {containers: [{resources: {limits: {memory: 1Mi, cpu: 1m}, requests: {memory: 1Mi, cpu: 1m}}}]}}`},
			{name: "other resources stay", object: pod("override", image+", resources: {limits: {memory: 1Gi, ephemeral-storage: 1Gi}, requests: {ephemeral-storage: 1Mi}}", ""),
				want: `{spec: {containers: [{resources: {limits: {ephemeral-storage: 1Gi}, requests: {ephemeral-storage: 1Mi}}}]}}`},
			{name: "other namespaces are left alone", object: pod("plain", image+", resources: {limits: {memory: 1Gi}}", ""),
				want: `{spec: {containers: [{resources: {limits: {memory: 1Gi, cpu: null}, requests: {memory: 1Gi, cpu: null}}}]}}`},
		},
	},
	{
		plugin: "RunOnceDuration",
		setup: `
apiVersion: v1
kind: Namespace
metadata: {name: once, annotations: {openshift.io/active-deadline-seconds-override: "600"}}
`,
		writes: []write{
			{name: "a pod that runs once gets a deadline", object: pod("plain", image, "restartPolicy: Never"), want: `{spec: {activeDeadlineSeconds: 3600}}`},
			{name: "the project may have another", object: pod("once", image, "restartPolicy: OnFailure"), want: `{spec: {activeDeadlineSeconds: 600}}`},
			{name: "a shorter one stays", object: pod("once", image, "restartPolicy: Never, activeDeadlineSeconds: 599"), want: `{spec: {activeDeadlineSeconds: 599}}`},
			{name: "a longer one does not", object: pod("once", image, "restartPolicy: Never, activeDeadlineSeconds: 601"), want: `{spec: {activeDeadlineSeconds: 600}}`},
			{name: "a pod that is restarted is left alone", object: pod("once", image, ""), want: `{spec: {activeDeadlineSeconds: null}}`},
		},
	},
	{
		plugin: "PodNodeConstraints",
		writes: []write{
			{name: "a pod must not choose its node", object: pod("plain", image, "nodeName: node-1"),
				denied: "the pod chooses its node by nodeName, which needs the right to create pods/binding"},
			{name: "in no way", object: pod("anywhere", image, "nodeName: node-1, nodeSelector: {kubernetes.io/hostname: node-1}"),
				denied: "the pod chooses its node by nodeName and kubernetes.io/hostname, which needs the right to create pods/binding"},
			{name: "nor may a template", object: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: plain}, spec: {selector: {matchLabels: {a: b}},
				template: {metadata: {labels: {a: b}}, spec: {nodeSelector: {kubernetes.io/hostname: node-1}, containers: [{name: c, image: i}]}}}}`,
				denied: "the pod chooses its node by kubernetes.io/hostname, which needs the right to create pods/binding"},
			{name: "or the template of a template", object: `{apiVersion: batch/v1, kind: CronJob, metadata: {name: d, namespace: plain}, spec: {schedule: "@daily",
				jobTemplate: {spec: {template: {spec: {restartPolicy: Never, nodeName: node-1, containers: [{name: c, image: i}]}}}}}}`,
				denied: "the pod chooses its node by nodeName, which needs the right to create pods/binding"},
			{name: "other labels are free", object: pod("anywhere", image, "nodeSelector: {kubernetes.io/arch: amd64}"), want: `{spec: {nodeSelector: {kubernetes.io/arch: amd64}}}`},
			{name: "so are those who may bind", as: "ops", object: pod("plain", image, "nodeName: node-1"), want: `{spec: {nodeName: node-1}}`},
		},
	},
	{
		plugin: "SecurityContextConstraint",
		setup: `
apiVersion: v1
kind: Namespace
metadata:
  name: uids
  annotations: {openshift.io/sa.scc.uid-range: 1000650000/10000, openshift.io/sa.scc.supplemental-groups: 1000660000/10000, openshift.io/sa.scc.mcs: "s0:c26,c5"}
---
apiVersion: v1
kind: Namespace
metadata: {name: bare}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: trusted, namespace: uids}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: trusted, namespace: uids}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: operators}
subjects: [{kind: ServiceAccount, name: trusted, namespace: uids}]
`,
		writes: []write{
			{name: "a pod runs as the first user of the range", object: pod("uids", image, ""),
				want: `{metadata: {annotations: {openshift.io/scc: restricted-v2}}, spec: {securityContext: {runAsUser: 1000650000, fsGroup: 1000660000, seLinuxOptions: {level: "s0:c26,c5"}}, containers: [{securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}}`},
			{name: "or as another one of it", object: pod("uids", image+", securityContext: {runAsUser: 1000659999}", "securityContext: {fsGroup: 1000669999}"),
				want: `{spec: {securityContext: {runAsUser: 1000650000, fsGroup: 1000669999}, containers: [{securityContext: {runAsUser: 1000659999}}]}}`},
			{name: "but not beyond", object: pod("uids", image+", securityContext: {runAsUser: 1000660000}", ""),
				denied: "the pod fits no security context constraint: restricted-v2: container c: runAsUser 1000660000 is not from 1000650000 to 1000659999"},
			{name: "nor as root", object: pod("uids", image, "securityContext: {runAsUser: 0}"), denied: "the pod fits no security context constraint: restricted-v2: container c: runAsUser 0 is not from 1000650000 to 1000659999"},
			{name: "nor with another group", object: pod("uids", image, "securityContext: {fsGroup: 5}"), denied: "the pod fits no security context constraint: restricted-v2: fsGroup 5 is not in the range of the project"},
			{name: "no pod is privileged, nor sees the node", object: pod("plain", image+", securityContext: {privileged: true, allowPrivilegeEscalation: true}", "volumes: [{name: v, hostPath: {path: /}}]"),
				denied: "the pod fits no security context constraint: restricted-v2: volume v of kind hostPath is not allowed, container c: privileged is not allowed, container c: allowPrivilegeEscalation must be false"},
			{name: "nor later", update: true, sub: "ephemeralcontainers", old: named("old", "uids", image, "securityContext: {runAsUser: 1000650001}"),
				object: "{apiVersion: v1, kind: Pod, metadata: {name: old, namespace: uids}, spec: {ephemeralContainers: [{name: e, " + image + ", securityContext: {runAsUser: 0}}]}}",
				denied: "the pod fits no security context constraint: restricted-v2: container e: allowPrivilegeEscalation must be false, container e: capability ALL must be dropped, " +
					"container e: runAsUser 0 is not from 1000650000 to 1000659999, container e: the seccomp profile must be one of runtime/default"},
			{name: "who may use anyuid gets it by its priority", as: "ops", object: pod("uids", image, "securityContext: {runAsUser: 0}"),
				want: `{metadata: {annotations: {openshift.io/scc: anyuid}}, spec: {securityContext: {runAsUser: 0, fsGroup: null}}}`},
			{name: "and is not privileged either", as: "ops", object: pod("uids", image, "hostPID: true"), denied: "the pod fits no security context constraint: anyuid: hostPID is not allowed; restricted-v2: hostPID is not allowed"},
			{name: "so is a pod whose account may", object: pod("uids", image, "serviceAccountName: trusted, securityContext: {runAsUser: 0}"),
				want: `{metadata: {annotations: {openshift.io/scc: anyuid}}, spec: {securityContext: {runAsUser: 0, fsGroup: null}}}`},
			{name: "nor with another SELinux type", object: pod("uids", image, `securityContext: {seLinuxOptions: {type: spc_t, level: "s0:c26,c5"}}`),
				denied: `the pod fits no security context constraint: restricted-v2: container c: the SELinux options must be user "", role "", type "", level "s0:c26,c5"`},
			{name: "a namespace without the annotations has no pods", object: pod("bare", image, "securityContext: {runAsUser: 5}"),
				denied: "the pod fits no security context constraint: restricted-v2: namespace bare has no annotation openshift.io/sa.scc.uid-range"},
			{name: "of those who may use another constraint neither", as: "ops", object: pod("bare", image, "securityContext: {fsGroup: 0}"),
				denied: "the pod fits no security context constraint: anyuid: namespace bare has no annotation openshift.io/sa.scc.mcs; restricted-v2: namespace bare has no annotation openshift.io/sa.scc.uid-range"},
		},
	},
	{
		plugin: "ImagePolicy",
		setup: `
apiVersion: v1
kind: Namespace
metadata: {name: images}
---
apiVersion: image.openshift.io/v1
kind: ImageStream
metadata: {name: app, namespace: images}
spec: {lookupPolicy: {local: true}}
status:
  tags:
  - {tag: "1", items: [{dockerImageReference: registry.example.com/team/app@sha256:1111111111111111111111111111111111111111111111111111111111111111}]}
  - {tag: latest, items: [{dockerImageReference: registry.example.com/team/app@sha256:2222222222222222222222222222222222222222222222222222222222222222}]}
---
apiVersion: image.openshift.io/v1
kind: ImageStream
metadata: {name: bad, namespace: images}
spec: {lookupPolicy: {local: true}}
status:
  tags:
  - {tag: "1", items: [{dockerImageReference: registry.example.com/team/bad@sha256:3333333333333333333333333333333333333333333333333333333333333333}]}
---
apiVersion: image.openshift.io/v1
kind: ImageStream
metadata: {name: remote, namespace: images}
spec: {lookupPolicy: {local: false}}
status:
  tags:
  - {tag: "1", items: [{dockerImageReference: registry.example.com/team/remote@sha256:1111111111111111111111111111111111111111111111111111111111111111}]}
---
apiVersion: v1
kind: Pod
metadata: {name: early, namespace: images}
spec: {containers: [{name: c, image: "bad:1"}]}
---
apiVersion: image.openshift.io/v1
kind: Image
metadata: {name: bad, labels: {images.openshift.io/deny-execution: "true"}}
dockerImageReference: registry.example.com/team/bad@sha256:3333333333333333333333333333333333333333333333333333333333333333
`,
		writes: []write{
			{name: "a tag of an image stream becomes its image", object: pod("images", `image: "app:1"`, ""),
				want: `{spec: {containers: [{image: registry.example.com/team/app@sha256:1111111111111111111111111111111111111111111111111111111111111111}]}}`},
			{name: "no tag is latest", object: pod("images", "image: app", `initContainers: [{name: i, image: "app:1"}, {name: j, image: registry.example.com/i}]`),
				want: `{spec: {containers: [{image: registry.example.com/team/app@sha256:2222222222222222222222222222222222222222222222222222222222222222}],
					initContainers: [{image: registry.example.com/team/app@sha256:1111111111111111111111111111111111111111111111111111111111111111}, {image: registry.example.com/i}]}}`},
			{name: "a tag that is not there is left alone", object: pod("images", `image: "app:2"`, ""), want: `{spec: {containers: [{image: "app:2"}]}}`},
			{name: "so is a stream that is not local", object: pod("images", `image: "remote:1"`, ""), want: `{spec: {containers: [{image: "remote:1"}]}}`},
			{name: "and one of another namespace", object: pod("plain", `image: "app:1"`, ""), want: `{spec: {containers: [{image: "app:1"}]}}`},
			{name: "a denied image is rejected", object: pod("plain", "image: docker.io/library/copy@sha256:3333333333333333333333333333333333333333333333333333333333333333", ""),
				denied: "the image registry.example.com/team/bad@sha256:3333333333333333333333333333333333333333333333333333333333333333 must not run"},
			{name: "a template of a deployment gets the image, too", object: deploy("images", `image: "app:1"`),
				want: `{spec: {template: {spec: {containers: [{image: registry.example.com/team/app@sha256:1111111111111111111111111111111111111111111111111111111111111111}]}}}}`},
			{name: "and that of a cron job", object: cronJob("images", `image: "app:1"`),
				want: `{spec: {jobTemplate: {spec: {template: {spec: {containers: [{image: registry.example.com/team/app@sha256:1111111111111111111111111111111111111111111111111111111111111111}]}}}}}}`},
			{name: "no template has a denied image", object: deploy("images", `image: "bad:1"`),
				denied: "the image registry.example.com/team/bad@sha256:3333333333333333333333333333333333333333333333333333333333333333 must not run"},
			{name: "nor one of another registry", object: cronJob("images", `image: "quay.example.com/team/x:1"`), denied: "images must not come from quay.example.com/team/x"},
			{name: "by any name", object: pod("images", `image: "bad:1"`, ""),
				denied: "the image registry.example.com/team/bad@sha256:3333333333333333333333333333333333333333333333333333333333333333 must not run"},
			{name: "a pod that runs it can be labelled", update: true,
				object: "{apiVersion: v1, kind: Pod, metadata: {name: early, namespace: images, labels: {a: b}}}", want: `{metadata: {labels: {a: b}}}`},
			{name: "but no pod can change to it", update: true, old: named("changed", "images", image, ""),
				object: "{apiVersion: v1, kind: Pod, metadata: {name: changed, namespace: images}, spec: {containers: [{name: c, image: docker.io/library/copy@sha256:3333333333333333333333333333333333333333333333333333333333333333}]}}",
				denied: "the image registry.example.com/team/bad@sha256:3333333333333333333333333333333333333333333333333333333333333333 must not run"},
			{name: "other registries are rejected", object: pod("plain", image, `initContainers: [{name: i, image: "quay.example.com:5000/team/x:1"}]`),
				denied: "images must not come from quay.example.com:5000/team/x"},
			{name: "another port is another registry", object: pod("plain", "image: registry.example.com:5000/x", ""), denied: "images must not come from registry.example.com:5000/x"},
			{name: "only a part of the default registry is allowed", object: pod("plain", "image: somebody/x", ""), denied: "images must not come from docker.io/somebody/x"},
			{name: "and a part of the allowed one is blocked", object: pod("plain", "image: registry.example.com/untrusted/x", ""),
				denied: "images must not come from registry.example.com/untrusted/x"},
			{name: "whose name is more than a prefix", object: pod("plain", "image: registry.example.com/untrustedly", ""),
				want: `{spec: {containers: [{image: registry.example.com/untrustedly}]}}`},
		},
	},
	{
		plugin: "ImageLimitRange",
		setup: `
apiVersion: v1
kind: Namespace
metadata: {name: limits}
---
apiVersion: v1
kind: LimitRange
metadata: {name: images, namespace: limits}
spec:
  limits:
  - {type: openshift.io/Image, max: {storage: 1Gi}}
  - {type: openshift.io/ImageStream, max: {openshift.io/image-tags: 2}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: nothing, namespace: limits}
`,
		writes: []write{
			{name: "a large image is rejected", object: mapping("limits", 1<<30+1), denied: "the image has 1073741825 bytes, the LimitRange images allows 1Gi"},
			{name: "one that just fits is not", object: mapping("limits", 1<<30), want: `{image: {dockerImageMetadata: {Size: 1073741824}}}`},
			{name: "nor are others", object: mapping("plain", 1<<40), want: `{image: {dockerImageMetadata: {Size: 1099511627776}}}`},
			{name: "many tags are rejected", object: "{apiVersion: image.openshift.io/v1, kind: ImageStream, metadata: {name: s, namespace: limits}, spec: {tags: [{name: a}, {name: b}, {name: c}]}}",
				denied: "the image stream has 3 tags, the LimitRange images allows 2"},
			{name: "two are not", object: "{apiVersion: image.openshift.io/v1, kind: ImageStream, metadata: {name: s, namespace: limits}, spec: {tags: [{name: a}, {name: b}]}}",
				want: `{spec: {tags: [{name: a}, {name: b}]}}`},
		},
	},
	{
		plugin: "BuildDefaults and BuildOverrides",
		writes: []write{
			{name: "a build gets what it lacks", object: build("Build", "plain", "", "sourceStrategy: {}", ""),
				want: `{spec: {strategy: {sourceStrategy: {env: [{name: HTTP_PROXY, value: "http://proxy.example.com"}]}}, output: {imageLabels: [{name: vendor, value: nobody}, {name: built-by, value: cluster}]}}}`},
			{name: "not what it has", as: "ops", object: build("Build", "plain", "", "dockerStrategy: {env: [{name: HTTP_PROXY, value: mine}]}", "output: {imageLabels: [{name: vendor, value: me}]}"),
				want: `{spec: {strategy: {dockerStrategy: {env: [{name: HTTP_PROXY, value: mine}]}}, output: {imageLabels: [{name: vendor, value: me}, {name: built-by, value: cluster}]}}}`},
			{name: "but it has what overrides say", object: build("Build", "plain", "", "sourceStrategy: {forcePull: false}", "output: {imageLabels: [{name: built-by, value: me}]}, nodeSelector: {type: mine, disk: ssd}"),
				want: `{spec: {strategy: {sourceStrategy: {forcePull: true}}, output: {imageLabels: [{name: built-by, value: cluster}, {name: vendor, value: nobody}]}, nodeSelector: {type: build-node, disk: ssd}}}`},
			{name: "in a strategy of its own, too", as: "ops", object: build("Build", "plain", "", "customStrategy: {from: x}", ""),
				want: `{spec: {strategy: {customStrategy: {from: x, forcePull: true, env: null}}}}`},
			{name: "the configuration of builds is left alone", object: build("BuildConfig", "plain", "", "sourceStrategy: {}", ""),
				want: `{spec: {strategy: {sourceStrategy: {env: null, forcePull: null}}, output: null, nodeSelector: null}}`},
		},
	},
	{
		plugin: "BuildByStrategy",
		writes: []write{
			{name: "a strategy needs a right", object: build("Build", "plain", "", "dockerStrategy: {}", ""), denied: "the strategy of the build needs the right to create builds/docker"},
			{name: "in configurations, too", object: build("BuildConfig", "plain", "", "customStrategy: {}", ""), denied: "the strategy of the build needs the right to create builds/custom"},
			{name: "and is allowed with it", as: "ops", object: build("BuildConfig", "plain", "", "customStrategy: {}", ""), want: `{spec: {strategy: {customStrategy: {}}}}`},
			{name: "a variant of it is another", as: "ops", object: build("Build", "plain", "", "dockerStrategy: {imageOptimizationPolicy: SkipLayers}", ""),
				denied: "the strategy of the build needs the right to create builds/optimizeddocker"},
			{name: "there must be one", as: "ops", object: build("Build", "plain", "", "", ""), denied: "the build has no strategy"},
			{name: "labels need no right", update: true, old: build("BuildConfig", "plain", "one", "dockerStrategy: {}", ""),
				object: "{apiVersion: build.openshift.io/v1, kind: BuildConfig, metadata: {name: one, namespace: plain, labels: {a: b}}}", want: `{metadata: {labels: {a: b}}}`},
			{name: "changes do", update: true, old: build("BuildConfig", "plain", "two", "dockerStrategy: {}", ""),
				object: `{apiVersion: build.openshift.io/v1, kind: BuildConfig, metadata: {name: two, namespace: plain}, spec: {source: {git: {uri: "https://elsewhere.example.com"}}}}`,
				denied: "the strategy of the build needs the right to create builds/docker"},
		},
	},
	{
		plugin: "BuildConfigSecretInjector",
		setup: `
apiVersion: v1
kind: Namespace
metadata: {name: sources}
---
apiVersion: v1
kind: Secret
type: kubernetes.io/basic-auth
metadata:
  name: basic
  namespace: sources
  annotations: {build.openshift.io/source-secret-match-uri-1: "*://git.example.com/*"}
stringData: {username: me, password: secret}
---
apiVersion: v1
kind: Secret
type: kubernetes.io/ssh-auth
metadata:
  name: ssh
  namespace: sources
  annotations:
    build.openshift.io/source-secret-match-uri-1: "ssh://other.example.com/*"
    build.openshift.io/source-secret-match-uri-2: "ssh://git.example.com/*"
stringData: {ssh-privatekey: secret}
---
apiVersion: v1
kind: Secret
metadata: {name: a-plain-one, namespace: sources}
`,
		writes: []write{
			{name: "a repository gets the secret that matches", object: source(`git: {uri: "https://git.example.com/a"}`), want: `{spec: {source: {sourceSecret: {name: basic}}}}`},
			{name: "of the kind that it needs", object: source(`git: {uri: "ssh://git.example.com/a"}`), want: `{spec: {source: {sourceSecret: {name: ssh}}}}`},
			{name: "a point is a point", object: source(`git: {uri: "https://gitxexample.com/a"}`), want: `{spec: {source: {sourceSecret: null}}}`},
			{name: "one that has a secret is left alone", object: source(`git: {uri: "https://git.example.com/a"}, sourceSecret: {name: mine}`), want: `{spec: {source: {sourceSecret: {name: mine}}}}`},
			{name: "so is one without a repository", object: source(""), want: `{spec: {source: {sourceSecret: null}}}`},
		},
	},
	{
		plugin: "RestrictSubjectBindings",
		setup: `
apiVersion: v1
kind: Namespace
metadata: {name: closed}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: early, namespace: closed}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: eve}]
---
apiVersion: authorization.openshift.io/v1
kind: RoleBindingRestriction
metadata: {name: people, namespace: closed}
spec:
  userrestriction: {users: [anna]}
---
apiVersion: authorization.openshift.io/v1
kind: RoleBindingRestriction
metadata: {name: teams, namespace: closed}
spec:
  grouprestriction: {groups: [team]}
---
apiVersion: authorization.openshift.io/v1
kind: RoleBindingRestriction
metadata: {name: robots, namespace: closed}
spec:
  serviceaccountrestriction: {namespaces: [closed], serviceaccounts: [{name: robot, namespace: plain}]}
`,
		writes: []write{
			{name: "who is listed may come in", object: binding("new", "closed", `{apiGroup: rbac.authorization.k8s.io, kind: User, name: anna}, {apiGroup: rbac.authorization.k8s.io, kind: Group, name: team},
				{kind: ServiceAccount, name: any, namespace: closed}, {kind: ServiceAccount, name: robot, namespace: plain}`), want: `{metadata: {name: new}}`},
			{name: "others may not", object: binding("new", "closed", `{apiGroup: rbac.authorization.k8s.io, kind: User, name: anna}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: eve},
				{apiGroup: rbac.authorization.k8s.io, kind: Group, name: anna}, {kind: ServiceAccount, name: other, namespace: plain}`),
				denied: "the project lets no role be bound to User eve, Group anna, ServiceAccount other"},
			{name: "who is in stays", update: true, object: binding("early", "closed",
				`{apiGroup: rbac.authorization.k8s.io, kind: User, name: eve}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: anna}`), want: `{metadata: {name: early}}`},
			{name: "a project without a list is open", object: binding("new", "plain", `{apiGroup: rbac.authorization.k8s.io, kind: User, name: eve}`), want: `{metadata: {name: new}}`},
		},
	},
	{
		plugin: "IngressAdmission",
		writes: []write{
			{name: "a host needs a right", object: ingress("new", "{host: a.example.com}"), denied: "the host a.example.com needs the right to create routes/custom-host"},
			{name: "and is allowed with it", as: "ops", object: ingress("new", "{host: a.example.com}"), want: `{spec: {rules: [{host: a.example.com}]}}`},
			{name: "no host needs none", object: ingress("new", `{http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: s, port: {number: 80}}}}]}}`), want: `{spec: {rules: [{host: null}]}}`},
			{name: "another host needs another right", update: true, old: ingress("one", "{host: a.example.com}"), object: ingress("one", "{host: a.example.com}, {host: b.example.com}"),
				denied: "the host b.example.com needs the right to update routes/custom-host"},
			{name: "one less does not", update: true, old: ingress("two", "{host: a.example.com}, {host: b.example.com}"), object: ingress("two", "{host: b.example.com}"),
				want: `{spec: {rules: [{host: b.example.com}]}}`},
		},
	},
	{
		plugin: "ExternalIPRanger",
		writes: []write{
			{name: "an address of the network is allowed", object: service("new", "192.0.2.127"), want: `{spec: {externalIPs: [192.0.2.127]}}`},
			{name: "unless it is rejected", object: service("new", "192.0.2.127, 192.0.2.128"), denied: "a service must not have the external address 192.0.2.128"},
			{name: "others are not", object: service("new", "198.51.100.1"), denied: "a service must not have the external address 198.51.100.1"},
			{name: "who has the right is free", as: "ops", object: service("new", "198.51.100.1"), want: `{spec: {externalIPs: [198.51.100.1]}}`},
			{name: "an address that is there stays", update: true, old: service("one", "198.51.100.1"), object: service("one", "198.51.100.1, 192.0.2.1"), want: `{spec: {externalIPs: [198.51.100.1, 192.0.2.1]}}`},
			{name: "a service without one is left alone", object: service("new", ""), want: `{spec: {externalIPs: null}}`},
		},
	},
	{
		plugin: "RestrictedEndpointsAdmission",
		writes: []write{
			{name: "endpoints must not lead to pods", object: endpoints("new", "10.128.0.0"), denied: "the address 10.128.0.0 needs the right to create endpoints/restricted"},
			{name: "nor slices to services", object: slice("new", "IPv4", "192.0.2.1, 172.30.255.255"), denied: "the address 172.30.255.255 needs the right to create endpointslices/restricted"},
			{name: "other addresses are free", object: endpoints("new", "10.127.255.255"), want: `{subsets: [{addresses: [{ip: 10.127.255.255}]}]}`},
			{name: "so are names", object: slice("new", "FQDN", "www.example.com"), want: `{endpoints: [{addresses: [www.example.com]}]}`},
			{name: "and nothing at all", object: "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: new, namespace: plain}, addressType: IPv4, endpoints: null}", want: `{addressType: IPv4}`},
			{name: "who has the right is free", as: "ops", object: endpoints("new", "10.128.0.1"), want: `{subsets: [{addresses: [{ip: 10.128.0.1}]}]}`},
			{name: "so is the controller", as: "controller", object: slice("new", "IPv4", "10.128.0.1"), want: `{endpoints: [{addresses: [10.128.0.1]}]}`},
			{name: "labels need no right", update: true, old: endpoints("one", "10.128.0.1"), object: "{apiVersion: v1, kind: Endpoints, metadata: {name: one, namespace: plain, labels: {a: b}}}", want: `{metadata: {labels: {a: b}}}`},
		},
	},
	{
		plugin: "ProjectRequestLimit",
		setup: `
apiVersion: v1
kind: Namespace
metadata: {name: dev-1, annotations: {openshift.io/requester: dev}}
---
apiVersion: v1
kind: Namespace
metadata: {name: dev-2, annotations: {openshift.io/requester: dev}}
---
apiVersion: v1
kind: Namespace
metadata: {name: ops-1, annotations: {openshift.io/requester: ops}}
`,
		writes: []write{
			{name: "who has as many as allowed gets no other", object: "{apiVersion: v1, kind: Namespace, metadata: {name: dev-3}}", denied: "dev has 2 of 2 namespaces"},
			{name: "one less and there is one more", as: "ops", object: "{apiVersion: v1, kind: Namespace, metadata: {name: ops-2}}", want: `{metadata: {annotations: {openshift.io/requester: ops}}}`},
			{name: "in nobody else's name", as: "ops", object: "{apiVersion: v1, kind: Namespace, metadata: {name: ops-2, annotations: {openshift.io/requester: eve}}}",
				want: `{metadata: {annotations: {openshift.io/requester: ops}}}`},
			{name: "nor later", update: true, old: "{apiVersion: v1, kind: Namespace, metadata: {name: dev-4, annotations: {openshift.io/requester: dev}}}",
				object: "{apiVersion: v1, kind: Namespace, metadata: {name: dev-4, annotations: {openshift.io/requester: eve}}}", denied: "only administrators change openshift.io/requester"},
			{name: "administrators have no limit and no name", as: "admin", object: "{apiVersion: v1, kind: Namespace, metadata: {name: dev-5}}", want: `{metadata: {annotations: null}}`},
		},
	},
}

func mapping(namespace string, size int64) string {
	return fmt.Sprintf("{apiVersion: image.openshift.io/v1, kind: ImageStreamMapping, metadata: {name: m, namespace: %s}, image: {dockerImageMetadata: {Size: %d}}}", namespace, size)
}

func build(kind, namespace, name, strategy, spec string) string {
	if name == "" {
		name = "new"
	}
	return fmt.Sprintf("{apiVersion: build.openshift.io/v1, kind: %s, metadata: {name: %s, namespace: %s}, spec: {strategy: {%s}%s}}", kind, name, namespace, strategy, comma(spec))
}

func source(fields string) string {
	return build("BuildConfig", "sources", "", "sourceStrategy: {}", "source: {"+fields+"}")
}

func binding(name, namespace, subjects string) string {
	return fmt.Sprintf("{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: %s, namespace: %s}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [%s]}",
		name, namespace, subjects)
}

func ingress(name, rules string) string {
	return fmt.Sprintf("{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: %s, namespace: plain}, spec: {defaultBackend: {service: {name: s, port: {number: 80}}}, rules: [%s]}}", name, rules)
}

func service(name, addresses string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: plain}, spec: {ports: [{port: 80}], externalIPs: [%s]}}", name, addresses)
}

func endpoints(name, address string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Endpoints, metadata: {name: %s, namespace: plain}, subsets: [{addresses: [{ip: %s}], ports: [{port: 80}]}]}", name, address)
}

func slice(name, kind, addresses string) string {
	return fmt.Sprintf("{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: %s, namespace: plain}, addressType: %s, endpoints: [{addresses: [%s]}]}", name, kind, addresses)
}

// deploy is a Deployment whose pods have one container, with some fields.
func deploy(namespace, container string) string {
	return "{apiVersion: apps/v1, kind: Deployment, metadata: {name: new, namespace: " + namespace + "}, spec: {selector: {matchLabels: {a: b}}, template: " + template("Always", container) + "}}"
}

// cronJob is the same as a CronJob.
func cronJob(namespace, container string) string {
	return "{apiVersion: batch/v1, kind: CronJob, metadata: {name: new, namespace: " + namespace + "}, spec: {schedule: 0 0 * * *, jobTemplate: {spec: {template: " + template("OnFailure", container) + "}}}}"
}

func template(restart, container string) string {
	return "{metadata: {labels: {a: b}}, spec: {restartPolicy: " + restart + ", containers: [{name: c, " + container + "}]}}"
}
