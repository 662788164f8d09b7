package image

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
)

// tree returns a file system of files given as NAME, or as NAME=TEXT.
func tree(files ...string) fstest.MapFS {
	found := fstest.MapFS{}
	for _, file := range files {
		name, text, _ := strings.Cut(file, "=")
		found[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return found
}

const (
	mainFile = "package main\n\nfunc main() {}\n"
	module   = "go.mod=module example.com/hook\n"
)

// S33.13: the command of a program is found by its Dockerfile.
func TestDockerfilesAreFollowed(t *testing.T) {
	const kubebuilder = "Dockerfile=FROM --platform=${BUILDPLATFORM:-linux/amd64} golang:1.25 AS builder\nARG TARGETOS\nARG TARGETARCH\nWORKDIR /workspace\n" +
		"COPY go.mod go.mod\n# the code\nCOPY cmd/main.go cmd/main.go\nCOPY api/ api/\nRUN CGO_ENABLED=0 GOOS=${TARGETOS:-linux} GOARCH=${TARGETARCH} \\\n  go build -a -o manager cmd/main.go\n" +
		"FROM gcr.io/distroless/static:nonroot\nWORKDIR /\nCOPY --from=builder /workspace/manager .\nUSER 65532:65532\nENTRYPOINT [\"/manager\"]\n"
	for _, tc := range []struct {
		name    string
		files   []string
		c       Container
		dir     string
		command string
		args    string
		found   string
	}{
		{name: "kubebuilder", files: []string{module, "cmd/main.go=" + mainFile, kubebuilder}, c: Container{Image: "controller:latest", Command: []string{"/manager"}},
			dir: ".", command: "go run ./cmd", found: "Dockerfile, 'go build' of manager"},
		{name: "a moved package", files: []string{module, "cmd/webhook/main.go=" + mainFile, "cmd/proxy/main.go=" + mainFile,
			"docker/webhook.Dockerfile=FROM golang as b\nARG LDFLAGS\nWORKDIR /w\nCOPY cmd/webhook/main.go main.go\nRUN go build -ldflags \"${LDFLAGS:--X a=b}\" -o manager main.go\nFROM scratch\nWORKDIR /\nCOPY --from=b /w/manager .\nENTRYPOINT [\"/manager\"]",
			"docker/proxy.Dockerfile=FROM golang as b\nWORKDIR /w\nCOPY cmd/proxy/main.go main.go\nRUN go build -o proxy main.go\nFROM scratch\nCOPY --from=b /w/proxy .\nENTRYPOINT [\"/proxy\"]"},
			c: Container{Image: "example.com/project/webhook:v1", Command: []string{"/manager"}}, dir: ".", command: "go run ./cmd/webhook"},
		{name: "a program on the PATH", files: []string{module, "main.go=" + mainFile,
			"Dockerfile=FROM golang AS build\nWORKDIR /src\nCOPY . /src\nRUN --mount=type=cache,target=/cache \\\n  go build -tags x,y -o bin/hook .\nFROM scratch AS run\nCOPY --from=build /src/bin/hook /usr/local/bin/\nCMD [\"hook\", \"--v=1\"]"},
			dir: ".", command: "go run -tags=x,y .", args: "--v=1"},
		{name: "a wrapper", files: []string{module, "main.go=" + mainFile,
			"Dockerfile=FROM golang AS builder\nWORKDIR $GOPATH/src/x\nCOPY . ./\nRUN go version\nRUN go build -o /webhook -v -a -ldflags=\"-buildid='' -w\" .\nFROM runner\nCOPY --from=builder /webhook /webhook\nENTRYPOINT [\"/go-runner\"]\nCMD [\"/webhook\"]"},
			dir: ".", command: "go run .", found: "without /go-runner"},
		{name: "a command of the container", files: []string{module, "main.go=" + mainFile,
			"Dockerfile=FROM golang AS b\nWORKDIR /w\nCOPY . .\nRUN go build -o /webhook .\nFROM scratch\nCOPY --from=b /webhook /webhook\nENTRYPOINT [\"/webhook\", \"--image\"]\nCMD [\"--default\"]"},
			c: Container{Command: []string{"/webhook", "--own"}}, dir: ".", command: "go run . --own"},
		{name: "a numbered stage, cd and a module below", files: []string{"app/go.mod=module a\n", "app/cmd/hook/main.go=" + mainFile,
			"Dockerfile=ARG V=1\nFROM golang:${V}\nCOPY app /src/app\nRUN cd /src/app && go build -o /out/hook ./cmd/hook\nFROM alpine\nCOPY --from=0 /out/hook /bin/hook\nENTRYPOINT [\"hook\"]"},
			dir: "app", command: "go run ./cmd/hook"},
		{name: "a file of goreleaser", files: []string{module, "main.go=" + mainFile, "hack/gen/main.go=" + mainFile,
			"Dockerfile=FROM alpine\nARG TARGETOS TARGETARCH\nCOPY dist/$TARGETOS/$TARGETARCH/hook /bin/\nENTRYPOINT [\"/bin/hook\"]"},
			dir: ".", command: "go run .", found: "the main package ."},
		{name: "a script that starts a program", files: []string{module, "cmd/server/main.go=" + mainFile, "entrypoint.sh=#!/bin/sh\nexec hook",
			"Dockerfile=FROM alpine\nCOPY entrypoint.sh /app/\nCMD [\"/app/entrypoint.sh\"]"}, dir: ".", command: "go run ./cmd/server", found: "without the script entrypoint.sh"},
		{name: "gunicorn", files: []string{"src/app.py", "Pipfile",
			"Dockerfile=FROM python AS parent\nWORKDIR /app\nCOPY Pipfile /app/\nFROM parent AS base\nRUN pipenv install\nFROM base AS test\nCOPY tests /app\nFROM base as Prod\nCOPY src /app\nENTRYPOINT [\"gunicorn\"]\nCMD [\"app:app\"]"},
			dir: "src", command: "gunicorn", args: "app:app"},
		{name: "python in a directory", files: []string{"hook/Dockerfile=FROM python\nWORKDIR /code\nCOPY ./main.py /code/main.py\nCMD [\"python3\", \"main.py\"]", "hook/main.py"},
			dir: "hook", command: "python3", args: "main.py"},
		{name: "the nearest Dockerfile", files: []string{"a/Dockerfile=FROM python\nWORKDIR /code\nCOPY a.py .\nCMD python3 a.py", "a/a.py", "b/Dockerfile=FROM python\nWORKDIR /code\nCOPY b.py .\nCMD python3 b.py", "b/b.py", "b/deploy/hook.yaml"},
			c: Container{Manifests: []string{"b/deploy"}}, dir: "b", command: "python3", args: "b.py"},
		{name: "the Dockerfile with the name of the image", files: []string{module, "cmd/hook/main.go=" + mainFile, "mock/main.go=" + mainFile,
			"Dockerfile=FROM golang AS b\nCOPY . /w\nRUN make hook\nFROM x\nCOPY --from=b /w/hook /bin/hook\nENTRYPOINT [\"/bin/hook\"]",
			"mock/Dockerfile=FROM golang AS b\nWORKDIR /w\nCOPY . /w\nRUN go build -o /server ./mock\nFROM x\nCOPY --from=b /server /server\nENTRYPOINT [\"/server\"]"},
			c: Container{Image: "hook:latest"}, dir: ".", command: "go run ./cmd/hook"},
		{name: "a script of a shell", files: []string{"a.py", "Dockerfile=FROM python\nWORKDIR /code\nCOPY a.py .\nCMD python3 a.py --port $PORT"}, dir: ".", command: "sh", args: "-c,python3 a.py --port $PORT"},
		{name: "a quoted program of a shell", files: []string{module, "main.go=" + mainFile, "Dockerfile=FROM golang AS b\nWORKDIR /w\nCOPY . .\nRUN go build -o hook .\nFROM alpine\nCOPY --from=b /w/hook /\nENTRYPOINT \"/hook\""},
			dir: ".", command: "go run .", found: "'go build' of hook"},
		{name: "an init program of another machine", files: []string{"app/server.js", "Dockerfile=FROM node AS b\nWORKDIR /app\nCOPY app .\nRUN npm ci\nFROM node\nWORKDIR /app\nCOPY --from=b /app .\nADD https://example.com/tini /tini\nENTRYPOINT [\"/tini\", \"-g\", \"--\"]\nCMD [\"node\", \"server.js\"]"},
			dir: "app", command: "node server.js"},
		{name: "a script of pyproject.toml", files: []string{"src/hook/main.py", "pyproject.toml=[project]\nname = \"hook\"\n[project.scripts]\nhook-server = \"hook.main:run\"\n[tool.x]\na = \"b:c\"\n",
			"Dockerfile=FROM python\nWORKDIR /app\nCOPY . .\nRUN pip install .\nENTRYPOINT [\"hook-server\"]"},
			dir: ".", command: "python3 -c import sys; from hook.main import run as run; sys.exit(run())"},
		{name: "npm", files: []string{"package.json={\"scripts\":{\"start\":\"node .\"}}", "Dockerfile=FROM node\nWORKDIR /app\nCOPY . .\nCMD [\"npm\", \"start\"]"}, dir: ".", command: "npm", args: "start"},
		{name: "npm without a Dockerfile", files: []string{"package.json={\"scripts\":{\"start\":\"node .\"}}"}, dir: ".", command: "npm start"},
		{name: "ko", files: []string{module, "cmd/webhook/main.go=" + mainFile, "cmd/other/main.go=" + mainFile}, c: Container{Image: "ko://example.com/hook/cmd/webhook"}, dir: ".", command: "go run ./cmd/webhook"},
		{name: "bind mounts", files: []string{module, "app/hook/main.go=" + mainFile, "app/other/main.go=" + mainFile,
			"Dockerfile=FROM golang AS b\nARG SOURCE=app\nWORKDIR /src\nRUN --mount=type=cache,target=/go --mount=type=bind,source=go.mod,target=go.mod --mount=target=code,src=$SOURCE \\\n go build -tags x -o /out ./code/hook\n" +
				"FROM scratch\nCOPY --from=b /out /manager\nENTRYPOINT [\"/manager\"]"}, dir: ".", command: "go run -tags=x ./app/hook"},
		{name: "a bind mount is not in the image", files: []string{"main.py", "build/requirements.txt",
			"Dockerfile=FROM python\nWORKDIR /app\nCOPY main.py ./\nRUN --mount=type=bind,source=build/requirements.txt,target=requirements.txt pip install -r requirements.txt\nCMD [\"python\", \"main.py\"]"},
			dir: ".", command: "python", args: "main.py"},
		{name: "a build of other files", files: []string{module, "cmd/hook/main.go=" + mainFile, "cmd/other/main.go=" + mainFile,
			"Dockerfile=FROM golang AS b\nRUN git clone https://example.com/hook . && go build -mod=vendor -tags x -o /hook ./cmd/hook\nFROM scratch\nCOPY --from=b /hook /hook\nENTRYPOINT [\"/hook\"]"},
			dir: ".", command: "go run -tags=x ./cmd/hook", found: "the main package cmd/hook"},
		{name: "two main functions in a directory", files: []string{module, "cmd/a.go=" + mainFile, "cmd/b.go=" + mainFile,
			"Dockerfile=FROM golang AS b\nCOPY . /w\nRUN go build -o /a /w/cmd/a.go\nFROM scratch\nCOPY --from=b /a /a\nENTRYPOINT [\"/a\"]"}, dir: ".", command: "go run ./cmd/a.go"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := search(tree(tc.files...), tc.c, func(string) bool { return true })
			if err != nil {
				t.Fatal(err)
			}
			if c := strings.Join(slices.Concat(got.Command, got.Entry), " "); got.Dir != tc.dir || c != tc.command || strings.Join(got.Arguments, ",") != tc.args || !strings.Contains(got.Found, tc.found) {
				t.Errorf("in %s: %s, with %q; %s", got.Dir, c, got.Arguments, got.Found)
			}
		})
	}
}

// S33.13: if the command cannot be found, the error names the nearest candidates.
func TestCandidatesAreNamed(t *testing.T) {
	for _, tc := range []struct {
		name  string
		files []string
		c     Container
		want  string
	}{
		{"nothing", nil, Container{Image: "a/b:1"}, "the manifests name the image a/b:1, and no Dockerfile is here: name the program after --"},
		{"two programs", []string{module, "cmd/a/main.go=" + mainFile, "cmd/b/main.go=" + mainFile, "Dockerfile=FROM x\nCOPY bin/c /c\nENTRYPOINT [\"/c\"]"}, Container{}, "such as: go run ./cmd/a; go run ./cmd/b"},
		{"a foreign program", []string{"Dockerfile=FROM nginx\nENTRYPOINT [\"/nginx\"]", "app.py"}, Container{}, "Dockerfile starts /nginx, which is not made from files of the project: name the program after --, such as: python3 app.py"},
		{"no gunicorn", []string{"requirements.txt", "app.py", "Dockerfile=FROM python\nWORKDIR /a\nCOPY . .\nCMD [\"gunicorn\", \"app\"]"}, Container{}, "starts gunicorn, which is not installed here: python3 -m venv .venv && .venv/bin/pip install -r requirements.txt"},
		{"no packages", []string{"app/index.js", "app/package.json={\"dependencies\": {}}", "Dockerfile=FROM node\nWORKDIR /a\nCOPY app .\nCMD [\"npm\", \"start\"]"}, Container{}, "Dockerfile starts npm start, and the packages of app/package.json are not installed here: cd app && npm install"},
		{"ko of another module", []string{module}, Container{Image: "ko://other.example.com/a"}, "is not of a module here"},
	} {
		if _, err := search(tree(tc.files...), tc.c, func(name string) bool { return name == "npm" }); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", tc.name, err, tc.want)
		}
	}
}

// S33.13: programs of a virtual environment need no PATH.
func TestVirtualEnvironments(t *testing.T) {
	files := tree("app.py", ".venv/bin/gunicorn", "Dockerfile=FROM python\nENV A=1 PATH=/x PYTHONUNBUFFERED=1\nENV OLD value of it\nWORKDIR /a\nCOPY . .\nCOPY conf /etc/hook/\nCMD [\"gunicorn\", \"app\"]", "conf/a.yaml")
	got, err := search(files, Container{}, func(string) bool { return false })
	if err != nil || got.Command[0] != "gunicorn" {
		t.Fatalf("%+v, %v", got, err)
	}
	if want := []string{"A=1", "PYTHONUNBUFFERED=1", "OLD=value of it"}; !slices.Equal(got.Environment, want) {
		t.Errorf("environment %q, want %q", got.Environment, want)
	}
	if want := []File{{"/etc/hook", "conf"}, {"/a", "."}}; !slices.Equal(got.Files, want) {
		t.Errorf("files %v, want %v", got.Files, want)
	}
}

// S33.13: a Dockerfile of another author does not lead out of the project, nor into a loop.
func TestHostileDockerfiles(t *testing.T) {
	circles := "FROM a AS a\nENTRYPOINT [\"/x\"]\n"
	for i := range 20 {
		circles += fmt.Sprintf("COPY --from=a /%d /\n", i)
	}
	for _, text := range []string{
		circles, "FROM x\nENTRYPOINT [\"/x\"]\n" + strings.Repeat("#", mostDockerfile),
		"FROM a AS a\nCOPY --from=a /x /x\nENTRYPOINT [\"/x\"]", "FROM x\nCOPY ../../etc/passwd /x\nENTRYPOINT [\"/x\"]", "ENTRYPOINT [\"/x\"]", "FROM", "FROM x\nCOPY a", "FROM x\nRUN <<EOF\ngo build", "FROM x\nENTRYPOINT []",
	} {
		if got, err := search(tree("Dockerfile="+text), Container{}, func(string) bool { return true }); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// S33.13: values that repeat other values, and stages that repeat other stages, have bounds.
func TestDockerfilesHaveBounds(t *testing.T) {
	text := "FROM x\nENV A0=0123456789\n"
	for i := range 22 {
		text += fmt.Sprintf("ENV A%d=$A%d\"$A%d\"'.'${B:-$A%d}\n", i+1, i, i, i)
	}
	for name, value := range parse(text)[0].variables {
		if len(value) > 2*mostValues {
			t.Errorf("$%s has %d bytes", name, len(value))
		}
	}
	if stages := parse(strings.Repeat("FROM 0\nRUN a\n", mostInstructions)); len(stages) > mostInstructions {
		t.Errorf("%d stages", len(stages))
	}
}

// S33.13: only regular files are read: opening a named pipe would wait for its writer.
func TestNamedPipesAreNotOpened(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"Dockerfile", "main.go", "package.json"} {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := Find(dir, Container{}); err == nil {
		t.Errorf("it found %v", got)
	}
}

func TestShellWords(t *testing.T) {
	for text, want := range map[string]string{
		`a 'b c' "d e"`: "a|b c|d e", `x=${A:-b} $A ${A} \$A '$A'`: "x=1|1|1|$A|$A", `${B:-x}${A:+y}`: "xy", `$(git describe --tags) b`: "$(git describe --tags)|b", ``: "", `""`: "",
	} {
		if got := strings.Join(words(text, map[string]string{"A": "1"}), "|"); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
