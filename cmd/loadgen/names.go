package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/flags"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
	"grablab/internal/service/registry"
)

// These limits keep runs short, because even opening a million orders takes a minute.
const (
	maxOrders   = 1_000_000
	maxRequests = 100_000_000 // number of orders times number of drivers
	minRate     = 0.001       // requests per second
	maxRate     = 1e6
)

var parseReady = flags.Where(flags.Text,
	func(path string) bool { return strings.HasPrefix(path, "/") && !strings.ContainsAny(path, "# \t\r\n") },
	"must be a path that begins with a slash, such as /healthz")

// readable returns name unchanged, or an error if there is no readable file with that name.
func readable(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	return name, f.Close()
}

// newFile returns name unchanged, or an error if it is empty or names a folder.
func newFile(name string) (string, error) {
	if isFolder(name) {
		return "", errors.New("is a folder: give the path of a file")
	}
	return flags.NonEmpty(name)
}

// bearer returns the token, or an error if the token is not safe in an HTTP header.
func bearer(text string) (string, error) {
	text, err := flags.NonEmpty(text)
	return text, cmp.Or(err, grab.CheckToken(text))
}

var parseRate = flags.Where(
	func(text string) (float64, error) { return strconv.ParseFloat(text, 64) },
	func(r float64) bool { return r >= minRate && r <= maxRate },
	fmt.Sprintf("must be a rate in requests per second, from %g to %.0f", minRate, maxRate))

func parseInt(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }

var parseID = flags.Where(parseInt, func(n int64) bool { return n >= 1 }, "must be an order ID, which is a number of 1 or more")

// maxDriver is the highest driver id that is allowed. Many JSON parsers cannot represent larger
// integers exactly.
const maxDriver = 1 << 53

var parseProbeDrivers = flags.Where(parseInt, func(n int64) bool { return n >= 2 && n <= maxDriver },
	fmt.Sprintf("must be the first driver ID for test grabs, from 2 to %d", int64(maxDriver)))

func parseAssert(text string) (experiment.Assert, error) {
	a, err := experiment.ParseAssert(text)
	switch {
	case errors.Is(err, experiment.ErrNoFigure):
		return a, flags.Unknown("field", a.Figure, experiment.Figures)
	case err != nil:
		return a, withoutPrefix(err, experiment.ErrAssert)
	}
	return a, nil
}

func scenarioNames() []string {
	return catalog.Map(experiment.Scenarios, func(s experiment.Scenario) string { return s.Name })
}

// chooseStrategies is like parseStrategies, but accepts unknown names, because the user's service
// may have other strategies. For a run with our own strategies, chooseNames rejects them.
func (s *settings) chooseStrategies(text string) (list []lock.Strategy, err error) {
	if s.strategyWords, err = flags.Names(text); err == nil {
		list, _ = parseStrategies(text)
	}
	return list, err
}

// parseStrategies parses names of strategies and of the groups "core", "all" and "peers". The group "all"
// contains the strategies in added too.
func parseStrategies(text string, added ...lock.Strategy) ([]lock.Strategy, error) {
	same := func(a, b lock.Strategy) bool { return a.Name == b.Name }
	return flags.Each(text, same, func(word string) ([]lock.Strategy, error) {
		switch word {
		case "core":
			return parseStrategies(strings.Join(core, ","))
		case "all":
			return slices.Concat(lock.Strategies, added), nil
		case "peers":
			return lock.Peers, nil
		}
		if i := slices.IndexFunc(added, func(s lock.Strategy) bool { return s.Name == word }); i >= 0 {
			return added[i : i+1], nil
		}
		s, err := findStrategy(word)
		return []lock.Strategy{s}, err
	})
}

func nameOf(s lock.Strategy) string { return s.Name }

func findStrategy(name string) (lock.Strategy, error) {
	s, err := lock.Find(name)
	if err != nil {
		return s, flags.Unknown("strategy", name, catalog.Map(slices.Concat(lock.Strategies, lock.Peers), nameOf), "core", "all", "peers")
	}
	return s, nil
}

// parseFaults parses names of faults, or "all". It returns the faults in catalog order.
func (s *settings) parseFaults(text string) ([]catalog.Fault, error) {
	same := func(a, b catalog.Fault) bool { return a == b }
	s.allFaults = false // forget an earlier -faults flag
	chosen, err := flags.Each(text, same, func(word string) ([]catalog.Fault, error) {
		if word == "all" {
			s.allFaults = true
			return catalog.RunFaults, nil
		}
		f, err := findFault(word)
		return []catalog.Fault{f}, err
	})
	if err != nil {
		return nil, err
	}
	return catalog.Filter(catalog.RunFaults, func(f catalog.Fault) bool { return slices.Contains(chosen, f) }), nil
}

// findFault returns the fault with this name, which may be outdated.
func findFault(name string) (catalog.Fault, error) {
	found, _, _ := catalog.FindFault(name)
	if slices.Contains(catalog.RunFaults, found.Name) {
		return found.Name, nil
	}
	return "", flags.Unknown("fault", name, catalog.RunFaults, "all")
}

func parseCell(text string) (experiment.CellName, error) {
	strategy, fault, ok := strings.Cut(text, "/")
	if !ok {
		return experiment.CellName{}, errors.New("must be a strategy and a fault, separated by a slash, such as setnx/pause")
	}
	f, err := findFault(fault)
	return experiment.CellName{Strategy: strategy, Fault: f}, err
}

func parsePIDs(text string) ([]int, error) {
	list, err := flags.Names(text)
	if err != nil {
		return nil, err
	}
	pids := make([]int, len(list))
	for i, word := range list {
		if pids[i], err = strconv.Atoi(word); err != nil || pids[i] < 2 {
			return nil, fmt.Errorf("%q must be a process ID of 2 or more, such as pgrep prints", word)
		}
		if slices.Contains(pids[:i], pids[i]) { // the texts differ, as in 5,05
			return nil, fmt.Errorf("%d is named twice: name it once", pids[i])
		}
	}
	return pids, nil
}

func parseTargets(text string) ([]string, error) {
	list, err := flags.List(text)
	if err != nil {
		return nil, err
	}
	for i, target := range list {
		if registry.IsSource(target) {
			if len(list) > 1 {
				return nil, fmt.Errorf("%s already finds all instances: leave out the other URLs", target)
			}
			_, err := registry.Parse(target)
			return list, err
		}
		u, err := url.Parse(target)
		if err == nil && u.Port() != "" {
			_, err = strconv.ParseUint(u.Port(), 10, 16)
		}
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
			u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return nil, fmt.Errorf("%q must be the base URL of an instance, such as http://127.0.0.1:8004 or http://127.0.0.1:8080/shop", target)
		}
		list[i] = u.Scheme + "://" + u.Host + strings.TrimRight(u.EscapedPath(), "/")
		if slices.Contains(list[:i], list[i]) {
			return nil, fmt.Errorf("%s is named twice: name each instance once", list[i])
		}
	}
	return list, nil
}
