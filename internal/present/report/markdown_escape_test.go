package report

import "testing"

// TestMarkdownEscapesLinks checks that text from a result file cannot create a link or an image.
func TestMarkdownEscapesLinks(t *testing.T) {
	for text, want := range map[string]string{
		"[here](http://h)":   `\[here](http://h)`,
		"![pixel](http://h)": `!\[pixel](http://h)`,
		"a [1] and [ref]: b": `a \[1] and \[ref]: b`,
		`already \[ escaped`: `already \\\[ escaped`,
	} {
		if got := escape(text); got != want {
			t.Errorf("escape(%q) = %q, want %q", text, got, want)
		}
	}
}
