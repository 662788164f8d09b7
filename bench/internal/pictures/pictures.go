// Package pictures draws measurements: values over sizes, both on logarithmic scales, with a line for each server or
// variant.
package pictures

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Panel is one diagram of a picture.
type Panel struct {
	// Title names the values and their unit, Sizes names the quantity on the horizontal axis.
	Title, Sizes string
	Lines        []Line
}

// Line contains the values of one server or variant. Sizes and values are positive.
type Line struct {
	Name   string
	Points []Point
}

// Point is the value at a size.
type Point struct{ Size, Value float64 }

const (
	// columns is the number of panels in a row.
	columns = 2
	// width and height are the size of a panel.
	width, height = 11 * vg.Centimeter, 7 * vg.Centimeter
)

// colors are the colors of the lines. Color-blind people can distinguish them, too.
var colors = []color.Color{
	color.RGBA{R: 0xd5, G: 0x5e, A: 0xff}, color.RGBA{G: 0x72, B: 0xb2, A: 0xff},
	color.RGBA{G: 0x9e, B: 0x73, A: 0xff}, color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff},
}

// glyphs are the marks of the points of a line.
var glyphs = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.PyramidGlyph{}}

// Write draws panels and writes them to an SVG file. It creates the directory of the file.
func Write(path string, panels []Panel) error {
	rows := (len(panels) + columns - 1) / columns
	plots := make([][]*plot.Plot, rows)
	for r := range plots {
		plots[r] = make([]*plot.Plot, columns)
		for c := range plots[r] {
			if i := r*columns + c; i < len(panels) {
				drawn, err := panels[i].draw()
				if err != nil {
					return fmt.Errorf("%s, %q: %w", path, panels[i].Title, err)
				}
				plots[r][c] = drawn
			}
		}
	}
	canvas := vgsvg.New(columns*width, vg.Length(rows)*height)
	// A white background, also between the panels, for pages with a dark theme.
	whole := draw.New(canvas)
	whole.FillPolygon(color.White, []vg.Point{whole.Min, {X: whole.Max.X, Y: whole.Min.Y}, whole.Max, {X: whole.Min.X, Y: whole.Max.Y}})
	pad := vg.Points(8)
	tiles := draw.Tiles{Rows: rows, Cols: columns, PadX: 3 * pad, PadY: 2 * pad, PadTop: pad, PadBottom: pad, PadLeft: pad, PadRight: 3 * pad}
	for r, row := range plot.Align(plots, tiles, whole) {
		for c, tile := range row {
			if plots[r][c] != nil {
				plots[r][c].Draw(tile)
			}
		}
	}
	var data bytes.Buffer
	if _, err := canvas.WriteTo(&data); err != nil {
		return err
	}
	// A viewer of the picture may not have this font: add alternatives.
	text := bytes.ReplaceAll(data.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arimo,Helvetica,Arial,sans-serif;"))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

func (p Panel) draw() (*plot.Plot, error) {
	drawn := plot.New()
	drawn.Title.Text, drawn.X.Label.Text = p.Title, p.Sizes
	for _, style := range []*font.Font{
		&drawn.Title.TextStyle.Font, &drawn.X.Label.TextStyle.Font, &drawn.X.Tick.Label.Font, &drawn.Y.Tick.Label.Font, &drawn.Legend.TextStyle.Font,
	} {
		style.Typeface, style.Variant = "Liberation", "Sans"
	}
	drawn.Legend.Top, drawn.Legend.Left = true, true
	drawn.Add(plotter.NewGrid())
	low, high := math.Inf(1), math.Inf(-1)
	for i, line := range p.Lines {
		if len(line.Points) == 0 {
			continue
		}
		points := make(plotter.XYs, len(line.Points))
		for n, point := range line.Points {
			if point.Size <= 0 || point.Value <= 0 {
				return nil, fmt.Errorf("%s has the value %g at the size %g: both must be positive", line.Name, point.Value, point.Size)
			}
			points[n] = plotter.XY{X: point.Size, Y: point.Value}
			low, high = min(low, point.Value), max(high, point.Value)
		}
		l, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		l.Color, l.Width = colors[i%len(colors)], vg.Points(1.5)
		marks.Color, marks.Shape, marks.Radius = l.Color, glyphs[i%len(glyphs)], vg.Points(2.5)
		drawn.Add(l, marks)
		drawn.Legend.Add(line.Name, l, marks)
	}
	if high < low {
		drawn.HideAxes()
		return drawn, nil
	}
	for _, axis := range []*plot.Axis{&drawn.X, &drawn.Y} {
		axis.Scale = plot.LogScale{}
		axis.Tick.Marker = ticks{}
	}
	// Leave room for the legend above the lines.
	drawn.Y.Min, drawn.Y.Max = low/1.5, high*math.Pow(1.5*high/low, .35)*1.5
	if drawn.X.Max == drawn.X.Min {
		drawn.X.Max *= 10
	}
	return drawn, nil
}

// ticks marks 1, 2 and 5 and their multiples by powers of ten, or only the powers of ten on a long scale.
type ticks struct{}

// Ticks implements plot.Ticker.
func (ticks) Ticks(low, high float64) []plot.Tick {
	steps := []float64{1, 2, 5}
	if high/low > 200 {
		steps = steps[:1]
	}
	var all []plot.Tick
	for power := math.Floor(math.Log10(low)); power <= math.Log10(high); power++ {
		for _, step := range steps {
			if v := step * math.Pow(10, power); v >= low && v <= high {
				all = append(all, plot.Tick{Value: v, Label: label(v)})
			}
		}
	}
	return all
}

// label formats a value with commas between thousands.
func label(v float64) string {
	text := fmt.Sprintf("%g", v)
	if v >= 1000 {
		text = fmt.Sprintf("%.0f", v)
		for i := len(text) - 3; i > 0; i -= 3 {
			text = text[:i] + "," + text[i:]
		}
	}
	return text
}
