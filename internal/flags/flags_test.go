package flags

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/peterbourgon/ff/v3"
)

type sample struct {
	name  string
	ttl   time.Duration
	tags  []string
	quiet bool
	token string
}

func (s *sample) flags() []Flag {
	return []Flag{
		New("name", "NAME", "a name", One(&s.name, NonEmpty)),
		New("ttl", "D", "a time", One(&s.ttl, AtLeast(time.Millisecond))),
		New("tag", "T", "a tag", Many(&s.tags, NonEmpty)),
		New("quiet", "", "no output", Switch(&s.quiet)),
		New("admin-token", "T", "a secret", One(&s.token, Checked(func(text string) error { return errors.New("must be longer") }))),
	}
}

// TestParse checks that flags and arguments can be mixed, and that the last value of a flag counts. The
// environment must set only flags that the command line does not set.
func TestParse(t *testing.T) {
	t.Setenv("SAMPLE_TTL", "3s")
	t.Setenv("SAMPLE_NAME", "ignored")
	var s sample
	line, err := Parse(s.flags(), strings.Fields("a -tag x -name n b -quiet -tag=y -name m"), ff.WithEnvVarPrefix("SAMPLE"))
	if err != nil {
		t.Fatal(err)
	}
	if s.name != "m" || s.ttl != 3*time.Second || !slices.Equal(s.tags, []string{"x", "y"}) || !s.quiet {
		t.Errorf("parsed values are %+v", s)
	}
	if want := []string{"-tag=x", "-name=n", "-quiet=true", "-tag=y", "-name=m"}; !slices.Equal(line.Flags, want) || !slices.Equal(line.Args, []string{"a", "b"}) {
		t.Errorf("flags %q, arguments %q", line.Flags, line.Args)
	}
	if !line.Given("ttl") || !line.Given("name") || line.Given("admin-token") {
		t.Error("Given must be true for ttl and name, and false for admin-token")
	}
}

func TestParseErrors(t *testing.T) {
	for args, want := range map[string]string{
		"-ttl 0s":          "-ttl 0s: must be at least 1ms",
		"-ttl soon":        "-ttl soon: must be a duration such as 30s, 500ms or 1m30s",
		"-nmae x":          "-nmae: there is no such flag: did you mean -name?",
		"-zzzzzzzz":        "-zzzzzzzz: there is no such flag: use -h to list the flags",
		"-name":            "-name: the value is missing: add it after the flag",
		"-quiet=maybe":     "-quiet maybe: must be true or false",
		"-admin-token abc": "-admin-token: must be longer",
		"stray":            "stray: this is not a flag: flags begin with -, and -h lists them",
	} {
		_, err := ParseFlags(new(sample).flags(), strings.Fields(args))
		if !errors.Is(err, ErrUsage) || strings.TrimPrefix(err.Error(), ErrUsage.Error()+": ") != want {
			t.Errorf("ParseFlags(%s) = %v, want %s", args, err, want)
		}
	}
	for _, args := range []string{"", "-name n", "-ttl 1ms -quiet"} {
		if _, err := ParseFlags(new(sample).flags(), strings.Fields(args)); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
	t.Setenv("SAMPLE_TTL", "abc")
	if _, err := Parse(new(sample).flags(), nil, ff.WithEnvVarPrefix("SAMPLE")); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "SAMPLE_TTL: must be a duration") {
		t.Errorf("the environment: %v", err)
	}
	var help HelpError
	if _, err := Parse(new(sample).flags(), strings.Fields("-tag x -h all")); !errors.Is(err, flag.ErrHelp) || !errors.As(err, &help) || help.Topic != "all" {
		t.Errorf("-h all: %v", err)
	}
}

// TestCheck checks that a rule reports an error if all conditions that it excludes are true and all
// conditions that it needs are false.
func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		args, excludes, needs string
		want                  bool
	}{
		{"-name n", "yes", "", true}, {"-name n", "no", "", false}, {"-name n", "yes, no", "", false}, {"-tag x", "yes", "", false},
		{"-name n", "", "yes", false}, {"-name n", "", "no", true}, {"-name n", "", "no, yes", false}, {"-name n", "", "-tag", true},
		{"-name n -tag x", "", "-tag", false}, {"-name n -tag x", "-tag", "no", true}, {"-name n -tag x", "-tag", "yes", false},
	} {
		line, err := Parse(new(sample).flags(), strings.Fields(tt.args))
		if err != nil {
			t.Fatal(err)
		}
		rules := []Rule{{Flags: "name", Excludes: tt.excludes, Needs: tt.needs, Wrong: "it is wrong", Do: "leave it out"}}
		err = Check(rules, line, map[string]bool{"yes": true, "no": false})
		if (err != nil) != tt.want || err != nil && err.Error() != "-name n: it is wrong; leave it out" {
			t.Errorf("%+v: Check: %v", tt, err)
		}
	}
}

// TestUnknownFact checks that a rule with a misspelt condition is noticed, instead of never applying.
func TestUnknownFact(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("the condition is accepted")
		}
	}()
	line, err := Parse(new(sample).flags(), strings.Fields("-name n"))
	if err != nil {
		t.Fatal(err)
	}
	_ = Check([]Rule{{Flags: "name", Excludes: "yess"}}, line, map[string]bool{"yes": true})
}

// TestLimits checks that a limit itself is a valid value, and that values beyond it are not.
func TestLimits(t *testing.T) {
	accepts := func(v flag.Value, text string) bool { return v.Set(text) == nil }
	var d time.Duration
	var n int
	for text, want := range map[string]bool{"999ms": false, "1s": true, "1500ms": true, "2s": true, "2001ms": false} {
		if got := accepts(One(&d, Between(time.Second, 2*time.Second)), text); got != want {
			t.Errorf("%s from 1s to 2s: %v", text, got)
		}
	}
	for text, want := range map[string]bool{"4": false, "5": true, "6": true, "7": true, "8": false, "5.5": false, "": false} {
		if got := accepts(One(&n, WholeNumber(5, 7)), text); got != want || got && text != strconv.Itoa(n) {
			t.Errorf("%q from 5 to 7: %v", text, got)
		}
	}
	var seed uint64
	for text, want := range map[string]bool{"0": true, "18446744073709551615": true, "18446744073709551616": false, "-1": false, "0x1": false, "1e3": false} {
		if got := accepts(One(&seed, Seed), text); got != want {
			t.Errorf("the seed %s: %v", text, got)
		}
	}
	if err := One(&n, WholeNumber(5, 7)).Set("8"); n < 5 || n > 7 || err == nil || err.Error() != "must be a whole number from 5 to 7" {
		t.Errorf("after 8: %d, %v", n, err)
	}
	if !accepts(One(&d, AtLeast(0)), "0s") || accepts(One(&d, AtLeast(0)), "-1ns") {
		t.Error("AtLeast(0) must accept 0s and reject -1ns")
	}
}

// TestParsers checks what each kind of value accepts and stores. After an error, the value must be unchanged.
func TestParsers(t *testing.T) {
	type size string
	var text string
	var pointer *int
	var chosen size
	var list []string
	wrong := errors.New("must be even")
	even := func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err == nil && n%2 > 0 {
			err = wrong
		}
		return n, err
	}
	pointerValue := func() (n int) {
		if pointer != nil {
			n = *pointer
		}
		return n
	}
	shown := func() string { return fmt.Sprint(text, "|", pointerValue(), "|", chosen, "|", list) }
	for _, tt := range []struct {
		value flag.Value
		text  string
		want  string // what all values are afterwards
		wrong string
	}{
		{One(&text, Text), " a ", " a |0||[]", ""},
		{One(&text, Text), "", "|0||[]", ""},
		{One(&text, NonEmpty), " ", "|0||[]", "must not be empty"},
		{One(&text, NonEmpty), "b", "b|0||[]", ""},
		{One(&text, Valid(even)), "3", "b|0||[]", "must be even"},
		{One(&text, Valid(even)), "04", "04|0||[]", ""},
		{One(&pointer, Pointer(even)), "5", "04|0||[]", "must be even"},
		{One(&pointer, Pointer(even)), "6", "04|6||[]", ""},
		{One(&chosen, OneOf[size]("large", "small")), "medium", "04|6||[]", "must be one of large, small"},
		{One(&chosen, OneOf[size]("large", "small")), "small", "04|6|small|[]", ""},
		{Many(&list, NonEmpty), "x", "04|6|small|[x]", ""},
		{Many(&list, NonEmpty), "", "04|6|small|[x]", "must not be empty"},
		{Many(&list, NonEmpty), "x", "04|6|small|[x x]", ""},
	} {
		err := tt.value.Set(tt.text)
		if (err == nil) != (tt.wrong == "") || err != nil && err.Error() != tt.wrong || shown() != tt.want {
			t.Errorf("%q: error %v, values %s; want %q, %s", tt.text, err, shown(), tt.wrong, tt.want)
		}
	}
	on := true
	for _, text := range []string{"false", "true", "0", "1"} {
		if err := Switch(&on).Set(text); err != nil || on != (text == "true" || text == "1") {
			t.Errorf("a switch set to %s is %v, %v", text, on, err)
		}
	}
	if err := Switch(&on).Set("yes"); err == nil || err.Error() != "must be true or false" || !on {
		t.Errorf("a switch set to yes: %v, %v", on, err)
	}
}

// TestHelp checks that a request for help is an error with the topic, wherever it is on the command line.
func TestHelp(t *testing.T) {
	for args, topic := range map[string]string{"-h": "", "-h ttl": "ttl", "-name n -help ttl more": "ttl", "a -h b": "b"} {
		_, err := Parse(new(sample).flags(), strings.Fields(args))
		help, ok := errors.AsType[HelpError](err)
		if !ok || help.Topic != topic || !errors.Is(err, flag.ErrHelp) || errors.Is(err, ErrUsage) || err.Error() != flag.ErrHelp.Error() {
			t.Errorf("%s: %v with the topic %q, want help about %q", args, err, help.Topic, topic)
		}
	}
}

// TestNames checks that a list is rejected if it contains a name twice, at any two places, or if it
// contains an empty name.
func TestNames(t *testing.T) {
	for i := range 4 {
		for j := range 4 {
			words := []string{"a", "b", "c", "d"}
			words[j] = words[i]
			list, err := Names(strings.Join(words, ", "))
			if (err != nil) != (i != j) || err == nil && !slices.Equal(list, words) {
				t.Errorf("Names(%v): %v, %v", words, list, err)
			}
		}
	}
	for _, text := range []string{"", ",", "a,", ",a", "a,,b"} {
		if _, err := Names(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// TestRows checks that the help shows each flag with its default, and omits flags without a help text.
func TestRows(t *testing.T) {
	s := sample{name: "n", quiet: true}
	hidden := New("hidden", "N", "", One(&s.name, NonEmpty))
	got := Rows(append(s.flags(), hidden))
	want := [][2]string{
		{"-name NAME", "a name (default n)"}, {"-ttl D", "a time"}, {"-tag T", "a tag"}, {"-quiet", "no output"}, {"-admin-token T", "a secret"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("Rows returned %q, want %q", got, want)
	}
}

// TestPrint checks the layout of the help. Each line has at most 100 columns, and all descriptions begin in the same
// column. A name that is too wide has a line of its own, and does not move that column.
func TestPrint(t *testing.T) {
	about := strings.TrimSpace(strings.Repeat("word ", 50))
	for _, widths := range [][]int{{1}, {5, 3}, {28, 2}, {29, 2}, {2, 40, 28}, {40}} {
		var flags []Flag
		column := 0 // the widest name that still has its description beside it
		for _, width := range widths {
			flags = append(flags, New(strings.Repeat("é", width-1), "", about, Switch(new(bool))))
			if width <= 28 {
				column = max(column, width)
			}
		}
		var out strings.Builder
		Print(&out, flags)
		names, words := 0, 0
		for line := range strings.Lines(out.String()) {
			text := []rune(strings.TrimSuffix(line, "\n"))
			if len(text) > 100 || string(text[:2]) != "  " {
				t.Errorf("%v: %q has %d columns", widths, line, len(text))
			}
			if text[2] == '-' {
				if alone := len(text) == 2+widths[names]; alone != (widths[names] > 28) {
					t.Errorf("%v: name %d is alone on its line: %v", widths, names, alone)
				}
				if names++; len(text) == 2+widths[names-1] {
					continue
				}
			} else if strings.TrimSpace(string(text[:column+4])) != "" {
				t.Errorf("%v: %q begins before column %d", widths, line, column+4)
			}
			beside := string(text[column+4:])
			if words += len(strings.Fields(beside)); !strings.HasPrefix(beside, "word") {
				t.Errorf("%v: %q does not begin in column %d", widths, line, column+4)
			}
		}
		if names != len(widths) || words != 50*len(widths) {
			t.Errorf("%v: %d names and %d words", widths, names, words)
		}
	}
}

// TestEach checks that the values of a list of words keep their order, and that each value occurs only once, even if
// several words stand for it.
func TestEach(t *testing.T) {
	groups := map[string][]int{"odd": {1, 3, 5}, "small": {1, 2, 3}, "five": {5}, "none": nil}
	find := func(word string) ([]int, error) {
		if of, ok := groups[word]; ok {
			return of, nil
		}
		return nil, Unknown("word", word, []string{"odd", "small"}, "five")
	}
	for text, want := range map[string][]int{"odd": {1, 3, 5}, "small, odd": {1, 2, 3, 5}, "five,small": {5, 1, 2, 3}, "none": nil} {
		if got, err := Each(text, func(a, b int) bool { return a == b }, find); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"odd,odd": "odd is named twice: name it once", "odd,,small": "must be a list of names separated by commas, such as a,b,c",
		"odd,smal": `there is no word "smal"; did you mean small?`, "xyz": `there is no word "xyz"; there are odd, small`,
	} {
		if got, err := Each(text, func(a, b int) bool { return a == b }, find); got != nil || err == nil || err.Error() != want {
			t.Errorf("%s: %v, %v, want %s", text, got, err, want)
		}
	}
}

// TestNamesOfFlags checks the name of a flag in messages. If a file sets the flag, the name must give
// the place in the file. No message may show a secret value.
func TestNamesOfFlags(t *testing.T) {
	line, err := Parse(new(sample).flags(), strings.Fields("-name n -ttl 3s -quiet"))
	if err != nil {
		t.Fatal(err)
	}
	line.values["admin-token"] = "s3cret"
	line.Places = map[string]string{"ttl": "my.yaml:3:7"}
	for name, want := range map[string][2]string{
		"name": {"-name", "-name n"}, "ttl": {"my.yaml:3:7: ttl", "my.yaml:3:7: ttl"}, "quiet": {"-quiet", "-quiet"}, "admin-token": {"-admin-token", "-admin-token"},
	} {
		if got := [2]string{line.Name(name), line.Label(name)}; got != want {
			t.Errorf("Name and Label of %s: %q, want %q", name, got, want)
		}
	}
}
