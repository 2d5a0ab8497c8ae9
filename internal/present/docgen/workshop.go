package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"grablab/internal/present/workshop"
)

// lesson contains the exercises and sentences of the workshop, for use in templates. The measured
// figures come from a run on real servers in TestWorkshopOnServers.
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

// Say returns a sentence of an exercise with its values filled in and its failure modes as links.
func (l lesson) Say(e workshop.Exercise, key string) string {
	f := workshop.Facts{"program": "loadgen", "n": strconv.Itoa(e.Number)}
	maps.Copy(f, l.facts[e.Number])
	return linkModes(strings.ReplaceAll(l.texts.Say(fmt.Sprintf("%d.%s", e.Number, key), f), "\n", " "))
}

// OptionsOf returns the letters of the options in an exercise.
func (l lesson) OptionsOf(e workshop.Exercise) []string { return strings.Split(e.Options, "") }

// QuestionsOf returns the keys of an exercise's questions, such as q1 and q2.
func (l lesson) QuestionsOf(e workshop.Exercise) (keys []string) {
	for i := range e.Questions {
		keys = append(keys, fmt.Sprintf("q%d", i+1))
	}
	return keys
}

// handout returns the sheet for students, with the questions but without the answers.
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
