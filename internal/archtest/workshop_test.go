package archtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"grablab/internal/present/workshop"
)

// workshopFacts are the facts of one run of the whole workshop, on real servers, by
// exercise. TestWorkshopOnServers writes them.
const workshopFacts = "internal/present/workshop/testdata/facts.json"

// page is what the sentences of the workshop are put into a document by.
type page struct {
	*workshop.Texts
	facts map[int]workshop.Facts
}

func newPage(lang string) (page, error) {
	texts, err := workshop.Load(lang)
	if err != nil {
		return page{}, err
	}
	p := page{Texts: texts}
	b, err := os.ReadFile(filepath.Join(root, workshopFacts))
	if err == nil {
		err = json.Unmarshal(b, &p.facts)
	}
	return p, err
}

// say is a sentence of an exercise, with failure modes as links.
func (p page) say(e workshop.Exercise, key string) string {
	f := workshop.Facts{"program": "loadgen", "n": strconv.Itoa(e.Number)}
	maps.Copy(f, p.facts[e.Number])
	text := strings.ReplaceAll(p.Say(fmt.Sprintf("%d.%s", e.Number, key), f), "\n", " ")
	return modeID.ReplaceAllStringFunc(text, func(id string) string { return "[" + id + "](failure-modes.md#" + strings.ToLower(id) + ")" })
}

var slot = regexp.MustCompile(`\{([a-z][\w.-]*)\}`)

// measured says whether the run has come to all that a sentence has slots for. What only
// a wrong answer brings, it has not.
func (p page) measured(e workshop.Exercise, key string) bool {
	for _, s := range slot.FindAllStringSubmatch(p.Say(key, nil), -1) {
		if p.facts[e.Number][s[1]] == "" {
			return false
		}
	}
	return true
}

// No slot of a sentence stands open in a document.
func TestDocsHaveNoSlots(t *testing.T) {
	for _, path := range documents(t) {
		if strings.Contains(path, "handout") || strings.Contains(path, "workshop") {
			if open := slot.FindAllString(readDocument(t, path), -1); open != nil {
				t.Errorf("%s: nothing fills %v", path, open)
			}
		}
	}
}

// handout is what students get: what is asked, and no answer.
func handout(lang string) string {
	p, err := newPage(lang)
	if err != nil {
		return err.Error()
	}
	for _, e := range workshop.Exercises { // what is drawn for each student
		if f := p.facts[e.Number]; f != nil {
			f["drivers"], f["instances"], f["ttl"] = "N", "N", "N"
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Grab Lab\n\n```sh\ngo run ./cmd/loadgen workshop\ngo run ./cmd/loadgen workshop 1\n```\n")
	for _, e := range workshop.Exercises {
		fmt.Fprintf(&b, "\n**%d. %s** %s\n", e.Number, p.say(e, "title"), p.say(e, "ask"))
		for _, o := range strings.Split(e.Options, "") {
			fmt.Fprintf(&b, "☐ %s  \n", p.say(e, o))
		}
		for i := range e.Questions {
			fmt.Fprintf(&b, "→ %s \\_\\_\\_\\_  \n", p.say(e, fmt.Sprintf("q%d.ask", i+1)))
		}
	}
	return b.String()
}

// workshopTimes is a line for each exercise.
func workshopTimes() (string, error) {
	p, err := newPage("en")
	var b strings.Builder
	b.WriteString("| | exercise | min | points | moral |\n|--:|---|--:|--:|---|\n")
	for _, e := range workshop.Exercises {
		fmt.Fprintf(&b, "| %d | %s | %d | %d | %s |\n", e.Number, p.say(e, "title"), e.Minutes, e.Points(), p.say(e, "moral"))
	}
	return b.String(), err
}

// notSaid are the sentences of a question that say nothing of what a student believes.
var notSaid = regexp.MustCompile(`\.(ask|right|header|lines|same|skipped|refused|incomplete|excludes)$`)

// workshopAnswers is what is right in each exercise, what students believe instead, and
// what to say to it.
func workshopAnswers() (string, error) {
	p, err := newPage("en")
	var b strings.Builder
	for _, e := range workshop.Exercises {
		fmt.Fprintf(&b, "### %d. %s\n\n%s\n\n", e.Number, p.say(e, "title"), p.say(e, "ask"))
		for _, o := range strings.Split(e.Options, "") {
			option := p.say(e, o)
			if o == e.Right {
				option = "**" + option + "**"
			}
			fmt.Fprintf(&b, "- %s. %s\n", option, p.say(e, "why."+o))
		}
		for i := range e.Questions {
			prefix := fmt.Sprintf("%d.q%d.", e.Number, i+1)
			fmt.Fprintf(&b, "\n%s\n\n- Right. %s\n", p.say(e, fmt.Sprintf("q%d.ask", i+1)), p.say(e, fmt.Sprintf("q%d.right", i+1)))
			for _, k := range p.Keys() {
				if belief, ok := strings.CutPrefix(k, prefix); ok && !notSaid.MatchString(k) && p.measured(e, k) {
					fmt.Fprintf(&b, "- `%s`: %s\n", belief, p.say(e, strings.TrimPrefix(k, fmt.Sprintf("%d.", e.Number))))
				}
			}
		}
		fmt.Fprintf(&b, "\n")
	}
	return strings.TrimSuffix(b.String(), "\n"), err
}
