package main

import (
	"slices"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/present/lab"
)

// TestLabExploreCommand checks that the command on the lab's page repeats the search of the page.
func TestLabExploreCommand(t *testing.T) {
	for _, tt := range []struct {
		file string
		q    lab.Search
	}{
		{"", lab.Search{Strategy: "setnx", Actors: 3, Faults: []catalog.Fault{"pause", "slow"}}},
		{"", lab.Search{Strategy: "none", Actors: 2}},
		{"mine.go", lab.Search{Strategy: "mine", Actors: 2, Faults: []catalog.Fault{"crash"}}},
	} {
		command := (&labSettings{file: tt.file}).exploreCommand(tt.q, explore.Failure{Property: catalog.OneWinner})
		_, args, _ := strings.Cut(command, " explore ")
		s, err := parseExplore(strings.Fields(args))
		if err != nil {
			t.Errorf("%s: parseExplore: %v", command, err)
			continue
		}
		if s.file != tt.file || !slices.Equal(s.names, []string{tt.q.Strategy}) || s.Actors != tt.q.Actors ||
			!slices.Equal(s.Faults, tt.q.Faults) || !slices.Equal(s.Properties, []string{catalog.OneWinner}) || !s.bounded {
			t.Errorf("%s does not repeat %+v", command, tt.q)
		}
	}
}
