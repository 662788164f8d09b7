package plugins

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/kubernetes/plugin/pkg/admission/admit"
	"k8s.io/kubernetes/plugin/pkg/admission/alwayspullimages"
	"k8s.io/kubernetes/plugin/pkg/admission/antiaffinity"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/approval"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/ctbattest"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/signing"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/subjectrestriction"
	"k8s.io/kubernetes/plugin/pkg/admission/defaulttolerationseconds"
	"k8s.io/kubernetes/plugin/pkg/admission/deny"
	"k8s.io/kubernetes/plugin/pkg/admission/eventratelimit"
	"k8s.io/kubernetes/plugin/pkg/admission/extendedresourcetoleration"
	"k8s.io/kubernetes/plugin/pkg/admission/gc"
	"k8s.io/kubernetes/plugin/pkg/admission/imagepolicy"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
	"k8s.io/kubernetes/plugin/pkg/admission/namespace/autoprovision"
	"k8s.io/kubernetes/plugin/pkg/admission/namespace/exists"
	"k8s.io/kubernetes/plugin/pkg/admission/network/defaultingressclass"
	"k8s.io/kubernetes/plugin/pkg/admission/network/denyserviceexternalips"
	"k8s.io/kubernetes/plugin/pkg/admission/nodedeclaredfeatures"
	"k8s.io/kubernetes/plugin/pkg/admission/noderestriction"
	"k8s.io/kubernetes/plugin/pkg/admission/nodetaint"
	"k8s.io/kubernetes/plugin/pkg/admission/podnodeselector"
	"k8s.io/kubernetes/plugin/pkg/admission/podresize"
	"k8s.io/kubernetes/plugin/pkg/admission/podtolerationrestriction"
	"k8s.io/kubernetes/plugin/pkg/admission/podtopologylabels"
	"k8s.io/kubernetes/plugin/pkg/admission/priority"
	"k8s.io/kubernetes/plugin/pkg/admission/runtimeclass"
	"k8s.io/kubernetes/plugin/pkg/admission/scheduling/podgroupprotection"
	"k8s.io/kubernetes/plugin/pkg/admission/security/podsecurity"
	"k8s.io/kubernetes/plugin/pkg/admission/serviceaccount"
	"k8s.io/kubernetes/plugin/pkg/admission/storage/persistentvolume/resize"
	"k8s.io/kubernetes/plugin/pkg/admission/storage/storageclass/setdefault"
	"k8s.io/kubernetes/plugin/pkg/admission/storage/storageobjectinuseprotection"

	"github.com/gatehouse-dev/gatehouse/admission"
)

// Plugin describes a built-in admission plugin of kube-apiserver.
type Plugin struct {
	Name string
	// Default reports whether the plugin is enabled by default, as in kube-apiserver.
	Default bool
	// Since is the minor release of Kubernetes 1 that first enabled the plugin by default; 0 for plugins of
	// every supported release.
	Since int
	// Does is the purpose of the plugin, in a sentence.
	Does string
	// About are the requests that the plugin may change or reject.
	About []About
	// Reads are the resources that the plugin reads to decide. Asks reports whether it authorizes the user.
	Reads []admission.Read
	Asks  bool
	// TakesConfiguration reports whether the plugin can have a configuration, and NeedsConfiguration whether it
	// requires one.
	TakesConfiguration, NeedsConfiguration bool
	// NoWebhook is the reason why the plugin cannot be served as a webhook; empty if it can.
	NoWebhook string

	register func(*apiadmission.Plugins)
	// check, if set, returns the errors of a configuration that upstream ignores.
	check    func(configuration []byte) error
	place    place
	forecast forecast
	// idle, if set, reports whether the plugin reads no objects for a request.
	idle func(apiadmission.Attributes) bool
	// onlyRefuses reports whether the plugin changes no object, although it takes part in the
	// mutating pass.
	onlyRefuses bool
	// changes are the fields that the plugin may change, as in admission.Confined; nil means all fields.
	changes []string
	// makesAccounts reports whether the plugin calls Options.MakeAccount.
	makesAccounts bool
}

// About is a resource whose requests a plugin may change or reject.
type About struct {
	// Group, Resource and Subresource may be "*". Subresource is empty for the resource
	// itself.
	Group, Resource, Subresource string
	// Operations are the operations that concern the plugin; nil means all that it handles.
	Operations []apiadmission.Operation
	// Namespaced reports whether the plugin handles only namespaced objects.
	Namespaced bool
}

// place is the place of a plugin in the order with the engine's plugins.
type place uint8

const (
	// mutators come after the initializers and before policies and webhooks.
	mutators place = iota
	// first comes before NamespaceLifecycle.
	first
	// last comes after everything else.
	last
)

// forecast is the way for a plan to get the verdict of a plugin without side effects.
type forecast uint8

const (
	// pure: the plugin changes only the object.
	//lint:ignore U1000 It is the zero value, which most rows have.
	pure forecast = iota
	// dry: a dry run of the plugin has no effect.
	dry
	// never: the plugin has effects also in a dry run, or calls other servers.
	never
)

const wildcard = "*"

var (
	create       = []apiadmission.Operation{apiadmission.Create}
	update       = []apiadmission.Operation{apiadmission.Update}
	everything   = []About{{Group: wildcard, Resource: wildcard, Subresource: wildcard}}
	inNamespaces = []About{{Group: wildcard, Resource: wildcard, Subresource: wildcard, Namespaced: true}}
	pods         = About{Resource: "pods"}
	newPods      = []About{{Resource: "pods", Operations: create}}
	claims       = About{Resource: "persistentvolumeclaims"}
)

// namespaced and cluster return resources that a plugin reads, of the core group unless a group
// is named.
func namespaced(resources ...string) []admission.Read {
	list := make([]admission.Read, len(resources))
	for i, r := range resources {
		list[i] = admission.Read{GroupResource: schema.ParseGroupResource(r), Namespaced: true}
	}
	return list
}

func cluster(resources ...string) []admission.Read {
	list := namespaced(resources...)
	for i := range list {
		list[i].Namespaced = false
	}
	return list
}

// table has every built-in admission plugin of kube-apiserver except NamespaceLifecycle and the plugins for
// webhooks and policies. The order is AllOrderedPlugins of k8s.io/kubernetes/pkg/kubeapiserver/options. The
// table is read only.
var table = []Plugin{
	{
		Name: admit.PluginName, register: admit.Register, place: first, onlyRefuses: true,
		Does:  "Allows everything. It has no use any more.",
		About: nil, NoWebhook: "it has no opinion",
	},
	{
		Name: autoprovision.PluginName, register: autoprovision.Register, place: first, forecast: never, onlyRefuses: true,
		Does:  "Creates the missing namespace of a new object.",
		About: inNamespaces, Reads: cluster("namespaces"),
		NoWebhook: "NamespaceLifecycle refuses the request before any webhook is called",
	},
	{
		Name: exists.PluginName, register: exists.Register,
		Does:  "Refuses requests in a namespace that does not exist. NamespaceLifecycle does more.",
		About: inNamespaces, Reads: cluster("namespaces"),
	},
	{
		Name: antiaffinity.PluginName, register: antiaffinity.Register,
		Does:  "Refuses pods whose required anti-affinity has another topology key than kubernetes.io/hostname.",
		About: []About{pods},
	},
	{
		Name: limitranger.PluginName, register: registerLimitRanger, Default: true,
		changes: []string{"Spec.Containers", "Spec.InitContainers", "ObjectMeta.Annotations"},
		Does:    "Gives containers the default requests and limits of the namespace's LimitRanges, and refuses values outside of them.",
		About: []About{
			{Resource: "pods", Operations: create}, {Resource: "pods", Subresource: "resize", Operations: update}, claims,
		},
		Reads: namespaced("limitranges"),
	},
	{
		Name: serviceaccount.PluginName, register: serviceaccount.Register, Default: true, makesAccounts: true,
		changes: []string{"Spec.ServiceAccountName", "Spec.DeprecatedServiceAccount", "Spec.ImagePullSecrets", "Spec.Volumes", "Spec.Containers", "Spec.InitContainers"},
		Does:    "Gives pods the service account \"default\" if they name none, mounts its token, and refuses pods whose account does not exist.",
		About: []About{
			{Resource: "pods", Operations: create}, {Resource: "pods", Subresource: "ephemeralcontainers"},
		},
		Reads: namespaced("serviceaccounts"),
	},
	{
		Name: noderestriction.PluginName, register: noderestriction.Register, onlyRefuses: true,
		Does: "Restricts the user of a node (system:node:NAME) to changes of the node itself and its pods.",
		About: []About{
			{Resource: "pods", Subresource: wildcard}, {Resource: "nodes", Subresource: wildcard},
			{Resource: "persistentvolumeclaims", Subresource: wildcard}, {Resource: "serviceaccounts", Subresource: wildcard},
			{Group: "certificates.k8s.io", Resource: "podcertificaterequests", Subresource: wildcard},
			{Group: "certificates.k8s.io", Resource: "certificatesigningrequests", Subresource: wildcard},
			{Group: "coordination.k8s.io", Resource: "leases", Subresource: wildcard},
			{Group: "storage.k8s.io", Resource: "csinodes", Subresource: wildcard},
			{Group: "resource.k8s.io", Resource: "resourceslices", Subresource: wildcard},
		},
		Reads: append(namespaced("pods", "serviceaccounts", "persistentvolumeclaims"), cluster("nodes", "persistentvolumes", "csidrivers.storage.k8s.io")...),
		Asks:  true,
	},
	{
		Name: nodetaint.PluginName, register: nodetaint.Register, Default: true,
		changes: []string{"Spec.Taints"},
		Does:    "Taints new nodes as not ready.",
		About:   []About{{Resource: "nodes", Operations: create}},
	},
	{
		Name: alwayspullimages.PluginName, register: alwayspullimages.Register,
		changes: []string{"Spec.Containers", "Spec.InitContainers", "Spec.EphemeralContainers", "Spec.Volumes"},
		Does:    "Sets the image pull policy of every container to Always.",
		About:   []About{pods},
	},
	{
		Name: imagepolicy.PluginName, register: imagepolicy.Register, forecast: never, TakesConfiguration: true, NeedsConfiguration: true,
		Does:  "Asks a webhook of the API imagepolicy.k8s.io whether the images of a pod may run.",
		About: []About{pods, {Resource: "pods", Subresource: "ephemeralcontainers"}},
	},
	{
		Name: podsecurity.PluginName, register: podsecurity.Register, Default: true, Since: 23, TakesConfiguration: true,
		Does: "Holds pods to the Pod Security Standard that the labels of their namespace name: it refuses, warns and audits.",
		About: []About{
			pods, {Resource: "pods", Subresource: "ephemeralcontainers"}, {Resource: "pods", Subresource: "resize"}, {Resource: "namespaces"},
			{Resource: "podtemplates"}, {Resource: "replicationcontrollers"},
			{Group: "apps", Resource: "replicasets"}, {Group: "apps", Resource: "deployments"},
			{Group: "apps", Resource: "statefulsets"}, {Group: "apps", Resource: "daemonsets"},
			{Group: "batch", Resource: "jobs"}, {Group: "batch", Resource: "cronjobs"},
		},
		Reads: append(cluster("namespaces"), namespaced("pods")...),
	},
	{
		Name: podnodeselector.PluginName, register: podnodeselector.Register, check: checkNodeSelectors, TakesConfiguration: true,
		changes: []string{"Spec.NodeSelector"},
		Does:    "Adds the node selector of the namespace's annotation, or of the cluster's default, to pods.",
		About:   newPods, Reads: cluster("namespaces"),
	},
	{
		Name: priority.PluginName, register: priority.Register, Default: true,
		changes: []string{"Spec.PriorityClassName", "Spec.Priority", "Spec.PreemptionPolicy"},
		Does:    "Turns the name of a pod's priority class into a number, and keeps at most one class the global default.",
		About: []About{
			{Resource: "pods", Operations: []apiadmission.Operation{apiadmission.Create, apiadmission.Update}},
			{Group: "scheduling.k8s.io", Resource: "podgroups", Operations: create},
			{Group: "scheduling.k8s.io", Resource: "compositepodgroups", Operations: create},
			{Group: "scheduling.k8s.io", Resource: "priorityclasses", Operations: []apiadmission.Operation{apiadmission.Create, apiadmission.Update}},
		},
		Reads: cluster("priorityclasses.scheduling.k8s.io"),
	},
	{
		Name: defaulttolerationseconds.PluginName, register: defaulttolerationseconds.Register, Default: true,
		changes: []string{"Spec.Tolerations"},
		Does:    "Lets pods tolerate nodes that are not ready or cannot be reached for five minutes.",
		About:   []About{pods},
	},
	{
		Name: podtolerationrestriction.PluginName, register: podtolerationrestriction.Register, TakesConfiguration: true,
		changes: []string{"Spec.Tolerations"},
		Does:    "Adds the tolerations of the namespace's annotations to pods, and refuses all that they do not allow.",
		About:   []About{pods}, Reads: cluster("namespaces"),
	},
	{
		Name: eventratelimit.PluginName, register: eventratelimit.Register, forecast: dry, TakesConfiguration: true, NeedsConfiguration: true,
		Does:  "Limits how many events are accepted a second, by server, namespace, user or source and object.",
		About: []About{{Resource: "events"}, {Group: "events.k8s.io", Resource: "events"}},
	},
	{
		Name: extendedresourcetoleration.PluginName, register: extendedresourcetoleration.Register,
		changes: []string{"Spec.Tolerations"},
		Does:    "Lets pods that ask for an extended resource tolerate the taint of its name.",
		About:   []About{pods},
	},
	{
		Name: setdefault.PluginName, register: setdefault.Register, Default: true,
		changes: []string{"Spec.StorageClassName"},
		Does:    "Gives claims without a storage class the default one.",
		About:   []About{{Resource: "persistentvolumeclaims", Operations: create}}, Reads: cluster("storageclasses.storage.k8s.io"), idle: withStorageClass,
	},
	{
		Name: storageobjectinuseprotection.PluginName, register: storageobjectinuseprotection.Register, Default: true,
		changes: []string{"ObjectMeta.Finalizers"},
		Does:    "Gives volumes, claims and volume attributes classes the finalizer that keeps them while they are in use.",
		About: []About{
			{Resource: "persistentvolumes", Operations: create}, {Resource: "persistentvolumeclaims", Operations: create},
			{Group: "storage.k8s.io", Resource: "volumeattributesclasses", Operations: create},
		},
	},
	{
		Name: podgroupprotection.PluginName, register: podgroupprotection.Register, Default: true,
		changes: []string{"ObjectMeta.Finalizers"},
		Does:    "Gives pod groups the finalizer that keeps them while they are in use.",
		About:   []About{{Group: "scheduling.k8s.io", Resource: "podgroups", Operations: create}},
	},
	{
		Name: gc.PluginName, register: gc.Register,
		Does:  "Requires the right to delete an object for changes of its owner references, and the right to set finalizers of the owner for blockOwnerDeletion.",
		About: everything, Asks: true,
	},
	{
		Name: resize.PluginName, register: resize.Register, Default: true,
		Does:  "Refuses to enlarge a claim whose storage class does not allow it.",
		About: []About{{Resource: "persistentvolumeclaims", Operations: update}}, Reads: cluster("storageclasses.storage.k8s.io"),
	},
	{
		Name: runtimeclass.PluginName, register: runtimeclass.Register, Default: true,
		changes: []string{"Spec.Overhead", "Spec.NodeSelector", "Spec.Tolerations"},
		Does:    "Gives pods the overhead, node selector and tolerations of their RuntimeClass, and refuses pods whose class does not exist.",
		About:   newPods, Reads: cluster("runtimeclasses.node.k8s.io"), idle: withoutRuntimeClass,
	},
	{
		Name: approval.PluginName, register: approval.Register, Default: true, Asks: true,
		Does:  "Requires the right to approve for the signer of a certificate signing request.",
		About: []About{{Group: "certificates.k8s.io", Resource: "certificatesigningrequests", Subresource: "approval", Operations: update}},
	},
	{
		Name: signing.PluginName, register: signing.Register, Default: true, Asks: true,
		Does:  "Requires the right to sign for the signer of a certificate signing request.",
		About: []About{{Group: "certificates.k8s.io", Resource: "certificatesigningrequests", Subresource: "status", Operations: update}},
	},
	{
		Name: ctbattest.PluginName, register: ctbattest.Register, Default: true, Asks: true,
		Does:  "Requires the right to attest for the signer of a cluster trust bundle.",
		About: []About{{Group: "certificates.k8s.io", Resource: "clustertrustbundles", Subresource: wildcard}},
	},
	{
		Name: subjectrestriction.PluginName, register: subjectrestriction.Register, Default: true,
		Does:  "Refuses signing requests for client certificates of the group system:masters.",
		About: []About{{Group: "certificates.k8s.io", Resource: "certificatesigningrequests", Operations: create}},
	},
	{
		Name: defaultingressclass.PluginName, register: defaultingressclass.Register, Default: true,
		changes: []string{"Spec.IngressClassName"},
		Does:    "Gives ingresses without a class the default one.",
		About:   []About{{Group: "networking.k8s.io", Resource: "ingresses", Operations: create}}, Reads: cluster("ingressclasses.networking.k8s.io"), idle: withIngressClass,
	},
	{
		Name: denyserviceexternalips.PluginName, register: denyserviceexternalips.Register,
		Does:  "Refuses new external IPs of services.",
		About: []About{{Resource: "services"}},
	},
	{
		Name: podtopologylabels.PluginName, register: podtopologylabels.Register, Default: true, Since: 35,
		changes: []string{"ObjectMeta.Labels"},
		Does:    "Copies the zone and region labels of a node to the pods that are bound to it.",
		About: []About{
			{Resource: "pods", Operations: create}, {Resource: "pods", Subresource: "binding", Operations: create},
		},
		Reads: cluster("nodes"), idle: unbound,
	},
	{
		Name: nodedeclaredfeatures.PluginName, register: nodedeclaredfeatures.Register, Default: true, Since: 36,
		Does: "Refuses a change of a bound pod that its node declares not to support.",
		About: []About{
			{Resource: "pods", Operations: update}, {Resource: "pods", Subresource: "resize", Operations: update},
			{Group: "resource.k8s.io", Resource: "resourceslices"},
		},
		Reads: cluster("nodes"), idle: unbound,
	},
	{
		Name: podresize.PluginName, register: podresize.Register, Default: true, Since: 36,
		Does:  "Refuses to resize a pod on a node that cannot do it, or to more than the node has.",
		About: []About{{Resource: "pods", Subresource: "resize", Operations: update}}, Reads: cluster("nodes"),
	},
	{
		Name: resourcequota.PluginName, register: resourcequota.Register, Default: true, place: last, forecast: dry, TakesConfiguration: true,
		Does:  "Refuses objects that exceed a ResourceQuota of the namespace, and charges the others.",
		About: inNamespaces, Reads: namespaced("resourcequotas"), idle: ofNamespaces,
	},
	{
		Name: deny.PluginName, register: deny.Register, place: last, onlyRefuses: true,
		Does:  "Refuses everything. It has no use any more.",
		About: everything, NoWebhook: "it would refuse the repair of its own registration",
	},
}

// All returns every built-in admission plugin, in order.
func All() []Plugin { return slices.Clone(table) }

// Lookup returns the plugin of a name.
func Lookup(name string) (Plugin, bool) {
	i := slices.IndexFunc(table, func(p Plugin) bool { return p.Name == name })
	if i < 0 {
		return Plugin{}, false
	}
	return table[i], true
}

// Order returns one list of the built-in admission plugins and of the engine's plugins, in the order in which
// they run by default (S9.3, S19.2). The engine's plugins stay in the order of the argument. AlwaysAdmit and
// NamespaceAutoProvision come before NamespaceLifecycle, most other built-in plugins come after Initializers,
// and ResourceQuota and AlwaysDeny come last.
func Order(engine []admission.Known) []admission.Known {
	at := func(p place) []admission.Known {
		var list []admission.Known
		for _, row := range table {
			if row.place == p {
				list = append(list, admission.Known{Name: row.Name, Default: row.Default})
			}
		}
		return list
	}
	list := at(first)
	for _, k := range engine {
		list = append(list, k)
		if k.Name == admission.InitializersName {
			list = append(list, at(mutators)...)
		}
	}
	return append(list, at(last)...)
}

// Concerns reports whether a request concerns the plugin.
func (p *Plugin) Concerns(a apiadmission.Attributes) bool {
	return slices.ContainsFunc(p.About, func(about About) bool { return about.matches(a) })
}

func (about *About) matches(a apiadmission.Attributes) bool {
	r := a.GetResource()
	return (about.Resource == wildcard || about.Resource == r.Resource) &&
		(about.Group == wildcard || about.Group == r.Group) &&
		(about.Subresource == wildcard || about.Subresource == a.GetSubresource()) &&
		(about.Operations == nil || slices.Contains(about.Operations, a.GetOperation())) &&
		(!about.Namespaced || a.GetNamespace() != "")
}

// ReadsFor returns the resources that the plugin reads for a request: Reads or none.
func (p *Plugin) ReadsFor(a apiadmission.Attributes) []admission.Read {
	if p.idle != nil && p.idle(a) {
		return nil
	}
	return p.Reads
}

// Counts reports whether the plugin has side effects other than changes of the object. It has no such effects
// in a dry run.
func (p *Plugin) Counts() bool { return p.forecast == dry }
