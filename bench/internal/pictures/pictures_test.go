package pictures

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestAPictureShowsWhatWasMeasured(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pictures", "scale.svg")
	panels := []Panel{
		{Title: "creates (/s)", Sizes: "widgets", Lines: []Line{
			{Name: "one <server>", Points: []Point{{1000, 2000}, {10_000, 1500}, {100_000, 40}}},
			{Name: "another", Points: []Point{{1000, 900}}},
			{Name: "a server that failed at once"},
		}},
		{Title: "memory (MiB)", Sizes: "widgets", Lines: []Line{{Name: "one <server>", Points: []Point{{1000, 7}}}}},
		{Title: "nothing was measured", Sizes: "widgets"},
	}
	if err := Write(path, panels); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for d := xml.NewDecoder(strings.NewReader(string(data))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := token.(xml.CharData); ok {
			texts = append(texts, strings.TrimSpace(string(text)))
		}
	}
	for _, want := range []string{"creates (/s)", "memory (MiB)", "widgets", "one <server>", "another", "1,000", "10,000", "100,000", "100"} {
		if !slices.Contains(texts, want) {
			t.Errorf("the picture does not show %q", want)
		}
	}
	if slices.Contains(texts, "a server that failed at once") {
		t.Error("the legend has a server of which there is no value")
	}
	if err := Write(path, []Panel{{Lines: []Line{{Name: "none", Points: []Point{{1, 0}}}}}}); err == nil || !strings.Contains(err.Error(), "none has the value 0") {
		t.Errorf("a value that has no place on the scale: %v", err)
	}
}
