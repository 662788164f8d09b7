package credentials

import (
	"regexp"
	"slices"
	"strings"
)

// Removed replaces a credential.
const Removed = "[removed]"

// ends are the last words of names of credentials, in lower case and without separators.
var ends = []string{
	"password", "passwd", "passphrase", "pwd", "secret", "token", "apikey", "accesskey", "secretkey", "privatekey",
	"clientkey", "clientkeydata", "signingkey", "encryptionkey", "accountkey", "masterkey",
}

// notNamed are exceptions from ends: the working directories of a shell.
var notNamed = []string{"pwd", "oldpwd"}

// Named reports whether the value of a name is a credential. The name may be of a member of an object, a
// variable, a flag, a header or a URL parameter, such as password, DB_PASS, clientSecret or
// AWS_SECRET_ACCESS_KEY.
func Named(name string) bool {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return strings.ContainsRune("_-./", r) })
	joined := strings.Join(words, "")
	if len(words) == 0 || slices.Contains(notNamed, joined) {
		return false
	}
	// Only as a word of its own: compass and bypass are not credentials.
	return words[len(words)-1] == "pass" || slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(joined, end) })
}

// forms are patterns of credentials that are recognized without a name, and their replacements. A pattern can
// match only texts that contain one of its marks in lower case.
var forms = []struct {
	marks []string
	form  *regexp.Regexp
	left  string
}{
	{[]string{"private key-----"}, regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`), Removed},
	// Tokens of service accounts and of issuers.
	{[]string{"eyj"}, regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`), Removed},
	{[]string{"bearer ", "basic "}, regexp.MustCompile(`(?i)\b(bearer|basic) +[A-Za-z0-9._~+/=-]{4,}`), "$1 " + Removed},
	{[]string{"://"}, regexp.MustCompile(`([a-z][a-z0-9+.-]*://)[^/@\s"']+@`), "${1}" + Removed + "@"},
	// Signed URLs of object stores.
	{[]string{"sig=", "signature="}, regexp.MustCompile(`(?i)([?&](?:sig|[a-z-]*signature)=)[^\s"'&#]+`), "${1}" + Removed},
	// Lines of pgpass: host, port, database, user and password.
	{[]string{":"}, regexp.MustCompile(`(?m)^([^:\s#]+:(?:\d+|\*):[^:\s]+:[^:\s]+:)\S+$`), "${1}" + Removed},
}

// names are parts that every name of a credential contains.
var names = []string{"pass", "pwd", "secret", "token", "key", "cookie", "authorization"}

func marked(lower string, marks []string) bool {
	return slices.ContainsFunc(marks, func(mark string) bool { return strings.Contains(lower, mark) })
}

// bootstrap matches the tokens by which nodes join a cluster.
var bootstrap = regexp.MustCompile(`[a-z0-9]{6}\.[a-z0-9]{16}`)

// label matches a name before its value: in files of variables, YAML, JSON, also inside of a JSON string,
// headers, queries of URLs, also encoded ones, command lines, and lists of variables and arguments.
var label = regexp.MustCompile(`\bname\\*["']?:[ \t]*\\*["']?([A-Za-z0-9_.-]+)\\*["']?,?\s*\\*["']?value\\*["']?[ \t]*:` +
	`|--?([A-Za-z0-9][A-Za-z0-9-]*)(?:[ \t]+|\\*["'][ \t]*,)` +
	`|([A-Za-z0-9_][A-Za-z0-9_.-]*)(?:\\*["'][ \t]*[:=]|[ \t]*=>?|:|%3[dD])`)

// Text redacts everything in a text that looks like a credential, and keeps the rest.
func Text(text string) string {
	if !strings.ContainsAny(text, ":=-.% ") {
		return text
	}
	if text[0] == '{' {
		if left, ok := Shown.inText(text); ok {
			return left
		}
	}
	lower := strings.ToLower(text)
	for _, f := range forms {
		if marked(lower, f.marks) {
			text = f.form.ReplaceAllString(text, f.left)
		}
	}
	if text = joinTokens(text); marked(lower, names) {
		text = namedValues(text)
	}
	return text
}

// joinTokens redacts tokens by which nodes join.
func joinTokens(text string) string {
	part := func(i int) bool {
		return i >= 0 && i < len(text) && (isWord(text[i]) || strings.IndexByte(".-", text[i]) >= 0)
	}
	var b strings.Builder
	done := 0
	for _, m := range bootstrap.FindAllStringIndex(text, -1) {
		// Parts of domains and names of events match, too, but are parts of longer words or have no digit.
		if part(m[0]-1) || part(m[1]) || !strings.ContainsAny(text[m[0]+7:m[1]], "0123456789") {
			continue
		}
		b.WriteString(text[done:m[0]] + Removed)
		done = m[1]
	}
	return b.String() + text[done:]
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// namedValues redacts the values of names of credentials.
func namedValues(text string) string {
	var b strings.Builder
	done := 0
	// seen is the start of the previous label. Each part of a line is searched once, however many labels it
	// has.
	seen, indent := 0, 0
	for at := 0; at < len(text); {
		m := label.FindStringSubmatchIndex(text[at:])
		if m == nil {
			break
		}
		i := 2
		for m[i] < 0 {
			i += 2
		}
		name, begin := text[at+m[i]:at+m[i+1]], at+m[0]
		at += m[1]
		alone := false
		if i := strings.LastIndexByte(text[seen:begin], '\n'); i >= 0 || seen == 0 {
			line := text[seen+i+1 : begin]
			before := strings.TrimLeft(line, " \t")
			indent = len(line) - len(before)
			alone = strings.Trim(before, `"'- `) == "" || before == "export "
		}
		seen = begin
		var from, to int
		switch {
		case Named(name):
			from, to = value(text, at, indent, alone)
		case header(name):
			from, to = headerValue(text, at)
		}
		// The value of another name may itself be a name.
		if from < to {
			b.WriteString(text[done:from] + Removed)
			done, at = to, to
		}
	}
	return b.String() + text[done:]
}

// header reports whether the value of a header is a credential, in addition to headers for which Named is
// true.
func header(name string) bool {
	name = strings.ToLower(name)
	return strings.HasSuffix(name, "cookie") || strings.HasSuffix(name, "authorization")
}

// schemes are the words before the credential of a header.
var schemes = regexp.MustCompile(`^(?i:bearer|basic) +`)

// headerValue returns the start and end of a header's value: it ends with the line, or with a list printed by
// Go.
func headerValue(text string, at int) (from, to int) {
	rest := strings.TrimLeft(text[at:], " \t\\\"'")
	if !strings.HasPrefix(rest, Removed) {
		rest = strings.TrimPrefix(rest, "[")
	}
	rest = rest[len(schemes.FindString(rest)):]
	from = len(text) - len(rest)
	if strings.HasPrefix(rest, Removed) {
		return from, from
	}
	end := strings.IndexAny(rest, "\r\n\"'\\]")
	if end < 0 {
		end = len(rest)
	}
	return from, from + end
}

// plain are values that only switch the use of a credential on or off, as automountServiceAccountToken does.
var plain = []string{"true", "false", "null", "nil", "~"}

// maxSlashes bounds the backslashes before a quote, in nested quoted texts.
const maxSlashes = 127

// value returns the start and end of the value of a name that ends at a position; an empty range for a list,
// an object or the name of a variable. indent is the indentation of the name's line, and alone is set if no
// other name precedes it on the line.
func value(text string, at, indent int, alone bool) (from, to int) {
	rest := strings.TrimLeft(text[at:], " \t")
	from = len(text) - len(rest)
	if rest == "" || strings.IndexByte("{[\r\n=&,;)", rest[0]) >= 0 || strings.HasPrefix(rest, "$(") || strings.HasPrefix(rest, "${") {
		return from, from
	}
	if rest[0] == '|' || rest[0] == '>' {
		if lines := strings.TrimLeft(rest[1:], "+-0123456789 \t\r"); strings.HasPrefix(lines, "\n") {
			return from, len(text) - len(lines) + block(lines, indent)
		}
	}
	slashes := len(rest) - len(strings.TrimLeft(rest, `\`))
	if quoted := rest[slashes:]; slashes <= maxSlashes && quoted != "" && (quoted[0] == '"' || quoted[0] == '\'') {
		from += slashes + 1
		return from, from + closing(rest[slashes+1:], rest[:slashes+1])
	}
	stops := " \t\r\n\"'&,;})]"
	if alone {
		// A line of a file.
		stops = "\r\n"
	}
	end := strings.IndexAny(rest, stops)
	if end < 0 {
		end = len(rest)
	}
	if slices.Contains(plain, strings.TrimRight(rest[:end], " \t,")) {
		end = 0
	}
	return from, from + end
}

// closing returns the end of a quoted value. quote is its opening quote with the backslashes before it.
func closing(text, quote string) int {
	for i := 0; i < len(text); i++ {
		switch {
		case strings.HasPrefix(text[i:], quote):
			return i
		case text[i] == '\n':
			return i
		case text[i] == '\\' && len(quote) == 1:
			i++
		}
	}
	return len(text)
}

// block returns the end of a YAML block: its lines are indented further than the line of the name.
func block(text string, indent int) int {
	end := 0
	for end < len(text) {
		next := strings.IndexByte(text[end+1:], '\n')
		line := text[end+1:]
		if next >= 0 {
			line = line[:next]
		}
		inside := strings.TrimLeft(line, " \t")
		if strings.TrimSpace(line) != "" && len(line)-len(inside) <= indent {
			break
		}
		end += 1 + len(line)
	}
	return end
}
