# Converts entries of Cloud Logging, as gcloud logging read --format json prints them, to audit events.
# jq -c -f gke.jq entries.json > audit.log
.[] | .protoPayload as $p | ($p.resourceName | split("/")) as $r | ($r | index("namespaces")) as $n |
  {kind: "Event", apiVersion: "audit.k8s.io/v1", stage: "ResponseComplete", auditID: (.operation.id // .insertId),
   level: (if $p.response then "RequestResponse" elif $p.request then "Request" else "Metadata" end),
   verb: ($p.methodName | split(".") | last), user: {username: $p.authenticationInfo.principalEmail},
   objectRef: {apiGroup: (if $r[0] == "core" then "" else $r[0] end), apiVersion: $r[1],
     namespace: (if $n then $r[$n + 1] else "" end), resource: (if $n then $r[$n + 2] else $r[2] end), name: (if $n then $r[$n + 3] else $r[3] end)},
   responseStatus: {code: (if ($p.status.code // 0) == 0 then 200 else 403 end), message: $p.status.message},
   requestObject: $p.request, responseObject: $p.response, annotations: .labels,
   requestReceivedTimestamp: .timestamp, stageTimestamp: .timestamp}
