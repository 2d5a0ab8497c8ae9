package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"

	"grablab/internal/present/workshop"
)

// lesson provides the workshop's exercises and texts to templates. The figures in the texts come from
// TestWorkshopOnServers, which runs the exercises on real servers.
type lesson struct {
	Exercises []workshop.Exercise
	Intro     string

	texts *workshop.Texts
	facts map[int]workshop.Facts // facts by exercise number
}

func lessonIn(lang string) (lesson, error) {
	texts, err := workshop.Load(lang)
	if err != nil {
		return lesson{}, err
	}
	l := lesson{Exercises: workshop.Exercises, Intro: texts.Say("ui.handout", nil), texts: texts}
	b, err := read("internal/present/workshop/testdata/facts.json")
	if err == nil {
		err = json.Unmarshal([]byte(b), &l.facts)
	}
	return l, err
}

// names matches the names of strategies, faults, properties and files in exercises. It matches names
// that are also ordinary words, such as watchdog and pause, only before the text that follows a name.
var names = regexp.MustCompile(`(results/[\w/.-]+\.txt|run\.json|latency_sent_ms\.max|-clock-offset|-out\b|\b(?:setnx|redlock|watchdog|mysql|redis|lease|release|one)-[a-z-]+|\bsetnx\b|\bredlock\b|\bamnesia\b)|\b(watchdog)(,| is )|\b(stuck|slow|pause|crash|cancel)(, | and |、| 之下| の下)`)

// Say returns one of the exercise's texts with its values filled in. It formats names as code, and
// turns failure modes into links.
func (l lesson) Say(e workshop.Exercise, key string) string {
	f := workshop.Facts{"program": "loadgen", "n": strconv.Itoa(e.Number)}
	maps.Copy(f, l.facts[e.Number])
	text := strings.ReplaceAll(l.texts.Say(fmt.Sprintf("%d.%s", e.Number, key), f), "\n", " ")
	return linkModes(names.ReplaceAllString(text, "`$1$2$4`$3$5"))
}

// OptionsOf returns the letters of the answers that the user can choose from in an exercise.
func (l lesson) OptionsOf(e workshop.Exercise) []string { return strings.Split(e.Options, "") }

// QuestionsOf returns the keys of an exercise's questions, such as q1 and q2.
func (l lesson) QuestionsOf(e workshop.Exercise) (keys []string) {
	for i := range e.Questions {
		keys = append(keys, fmt.Sprintf("q%d", i+1))
	}
	return keys
}

// fromLesson returns a function that executes a template with the exercises in one language. The
// handout template is the students' worksheet, so it omits the answers.
func fromLesson(name, lang string) func() (string, error) {
	return func() (string, error) {
		l, err := lessonIn(lang)
		if err != nil {
			return "", err
		}
		if name == "handout" {
			for _, f := range l.facts { // the workshop draws different values for each student
				f["drivers"], f["instances"], f["ttl"] = "N", "N", "N"
			}
		}
		return execute(name, l)
	}
}
