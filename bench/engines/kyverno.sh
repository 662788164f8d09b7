mkdir -p ~/.cache/gatehouse/engines/kyverno && cd ~/.cache/gatehouse/engines/kyverno
go mod init engine
go mod edit -replace k8s.io/pod-security-admission=github.com/kyverno/pod-security-admission@v0.0.0-20251031094455-46f20778634f
go get github.com/kyverno/kyverno/cmd/kyverno@v1.19.1
go build -mod=mod -o kyverno github.com/kyverno/kyverno/cmd/kyverno
cp "$(go list -m -f '{{.Dir}}' github.com/kyverno/kyverno)/config/install-latest-testing.yaml" kyverno.yaml
