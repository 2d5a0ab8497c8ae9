package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"grablab/internal/present/workshop"
)

// lesson provides the exercises and texts of the workshop to templates. The measured figures come
// from TestWorkshopOnServers, which runs the exercises on real servers.
type lesson struct {
	Exercises []workshop.Exercise

	texts *workshop.Texts
	facts map[int]workshop.Facts // facts by number of the exercise
}

func (g generator) lesson(lang string) (lesson, error) {
	texts, err := workshop.Load(lang)
	if err != nil {
		return lesson{}, err
	}
	l := lesson{Exercises: workshop.Exercises, texts: texts}
	b, err := g.read("internal/present/workshop/testdata/facts.json")
	if err == nil {
		err = json.Unmarshal([]byte(b), &l.facts)
	}
	return l, err
}

// Say returns a text of an exercise, with values filled in and links to failure modes.
func (l lesson) Say(e workshop.Exercise, key string) string {
	f := workshop.Facts{"program": "loadgen", "n": strconv.Itoa(e.Number)}
	maps.Copy(f, l.facts[e.Number])
	return linkModes(strings.ReplaceAll(l.texts.Say(fmt.Sprintf("%d.%s", e.Number, key), f), "\n", " "))
}

// OptionsOf returns the letters of the options of an exercise.
func (l lesson) OptionsOf(e workshop.Exercise) []string { return strings.Split(e.Options, "") }

// QuestionsOf returns the keys of the questions of an exercise, such as q1 and q2.
func (l lesson) QuestionsOf(e workshop.Exercise) (keys []string) {
	for i := range e.Questions {
		keys = append(keys, fmt.Sprintf("q%d", i+1))
	}
	return keys
}

// handout returns the worksheet for students, without the answers.
func (g generator) handout(lang string) (string, error) {
	l, err := g.lesson(lang)
	if err != nil {
		return "", err
	}
	for _, f := range l.facts { // the workshop draws different values for each student
		f["drivers"], f["instances"], f["ttl"] = "N", "N", "N"
	}
	return g.execute("handout", l)
}

func (g generator) workshopBlock(name string) func() (string, error) {
	return func() (string, error) {
		l, err := g.lesson("en")
		if err != nil {
			return "", err
		}
		return g.execute(name, l)
	}
}
