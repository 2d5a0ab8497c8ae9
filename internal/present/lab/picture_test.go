package lab_test

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"slices"
	"testing"
)

// mostColours limits the number of colours in a picture, so that its file is small enough for a document.
const mostColours = 96

// fewColours reduces the colours of a PNG to at most mostColours.
func fewColours(t *testing.T, raw []byte) []byte {
	t.Helper()
	shown, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	few := image.NewPaletted(shown.Bounds(), paletteOf(shown))
	draw.Draw(few, few.Bounds(), shown, few.Bounds().Min, draw.Src)
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, few); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// paletteOf returns the most frequent colours of a picture, with similar colours merged.
func paletteOf(m image.Image) color.Palette {
	type like struct{ r, g, b uint8 }
	alike := func(c color.RGBA) like { return like{c.R >> 4, c.G >> 4, c.B >> 4} }
	most := map[like]map[color.RGBA]int{}
	for y := m.Bounds().Min.Y; y < m.Bounds().Max.Y; y++ {
		for x := m.Bounds().Min.X; x < m.Bounds().Max.X; x++ {
			c := color.RGBAModel.Convert(m.At(x, y)).(color.RGBA)
			if most[alike(c)] == nil {
				most[alike(c)] = map[color.RGBA]int{}
			}
			most[alike(c)][c]++
		}
	}
	type group struct {
		c color.RGBA
		n int
	}
	var groups []group
	for _, same := range most {
		best, sum := color.RGBA{}, 0
		for c, n := range same {
			if sum += n; n > same[best] || n == same[best] && cmp.Compare(c.R, best.R) < 0 {
				best = c
			}
		}
		groups = append(groups, group{best, sum})
	}
	slices.SortFunc(groups, func(a, b group) int { return cmp.Compare(b.n, a.n) })
	var all color.Palette
	for _, g := range groups[:min(len(groups), mostColours)] {
		all = append(all, g.c)
	}
	return all
}
