package report_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"grablab/internal/measure/experiment"
	"grablab/internal/present/report"
)

// FuzzHTML checks that the page of any result file has only its own two scripts and no event handlers. The
// data in the page must be valid JSON.
func FuzzHTML(f *testing.F) {
	for _, r := range []*experiment.Run{badDay(), rush(), peak(), foreign()} {
		var b bytes.Buffer
		if err := report.JSON(&b, r); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte(`{"id":"</script>","cells":[{"strategy":"\"><script>","fault":"none","verdict":"n/a","story":{"steps":[{}],"events":[{"t_ns":-1}]}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		run := new(experiment.Run)
		if json.Unmarshal(text, run) != nil {
			return
		}
		var b bytes.Buffer
		if err := report.HTML(&b, run); err != nil {
			t.Fatal(err)
		}
		page := asset.ReplaceAllString(b.String(), "$1$2")
		if n := strings.Count(page, "<script"); n != 2 {
			t.Errorf("the page has %d scripts, want 2", n)
		}
		if handler := regexp.MustCompile(`<[a-z][^>"]*("[^"]*"[^>"]*)* on\w+=`).FindString(page); handler != "" {
			t.Errorf("the page has the event handler %s", handler)
		}
		_, data, _ := strings.Cut(page, `id="data">`)
		data, _, _ = strings.Cut(data, "</script>")
		if !json.Valid([]byte(data)) {
			t.Error("the data of the page is not valid JSON")
		}
	})
}
