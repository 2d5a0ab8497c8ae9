package whichlock

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestAdvise(t *testing.T) {
	f := KnownFacts()
	for _, tt := range []struct {
		answers string
		want    string // the advised locks
		but     string // the requirement that the first lock does not meet; empty if it meets all
	}{
		{"update database shorter go", "mysql-cas mysql-unique mysql-getlock", ""},
		{"never database longer python", "mysql-getlock mysql-forupdate", ""},
		{"never redis shorter go", "handoff setnx-fenced watchdog-fenced", ""},
		{"never redis shorter java", "setnx-fenced watchdog-fenced mysql-getlock", ""},
		{"never redis longer go", "handoff watchdog-fenced mysql-getlock", ""},
		{"never redis endless go", "setnx-fenced handoff watchdog-fenced", ""},
		{"may redis longer go", "handoff watchdog watchdog-fenced", ""},
		{"never etcd shorter java", "mysql-getlock mysql-forupdate etcd-fenced", ""},
		{"never database endless other", "mysql-getlock mysql-forupdate", "holds the lock permanently"},
	} {
		answers := answersOf(t, tt.answers)
		fit, err := f.Advise(answers)
		var names []string
		for _, o := range fit {
			names = append(names, o.Strategy)
		}
		if err != nil || strings.Join(names, " ") != tt.want {
			t.Errorf("advice for %s: %v, %v, want %s", tt.answers, names, err, tt.want)
			continue
		}
		if but := fit[0].Unmet(answers); (but == "") != (tt.but == "") || !strings.Contains(but, tt.but) {
			t.Errorf("%s: %s, but %q, want %q", tt.answers, names[0], but, tt.but)
		}
	}
	for _, answers := range []string{"", "never redis", "x redis longer go", "never x longer go", "never redis x go", "never redis longer x"} {
		if _, err := parse(answers); err == nil {
			t.Errorf("%q: no error", answers)
		}
	}
}

// parse parses answers in the order of the questions.
func parse(words string) (Answers, error) {
	given := strings.Fields(words)
	return ParseAnswers(func(question string) string {
		i := slices.IndexFunc(Questions, func(q Question) bool { return q.Name == question })
		if i >= len(given) {
			return ""
		}
		return given[i]
	})
}

func answersOf(t *testing.T, words string) Answers {
	t.Helper()
	answers, err := parse(words)
	if err != nil {
		t.Fatal(err)
	}
	return answers
}

// TestDuties checks that the duties fit the lock, the answers and the language.
func TestDuties(t *testing.T) {
	f := KnownFacts()
	for _, tt := range []struct{ strategy, answers, want, lacks string }{
		{"mysql-cas", "update database longer java", "AND status = 0|UNIQUE", "lease|fence|RowsAffected|hangs"},
		{"mysql-cas", "update database shorter go", "RowsAffected|UNIQUE", "lease|fence"},
		{"mysql-unique", "never database shorter python", "INSERT INTO grants|UNIQUE", "lease|fence|status = 0|Duplicate"},
		{"mysql-unique", "never database shorter java", "DuplicateKeyException|UNIQUE", "lease|fence|status = 0"},
		{"etcd-fenced", "never etcd shorter java", "fence = :token", "redis|SET NX"},
		{"mysql-getlock", "never database longer python", "SELECT status|hangs", "before the lease|fence|status = 0|context"},
		{"setnx-fenced", "never redis shorter java", "fence = :token|before the lease|result.get(left|redis.call", "hangs|RowsAffected|context"},
		{"setnx-fenced", "never redis longer other", "fence = :token|the first SET succeeded", "before the lease"},
		{"watchdog-fenced", "never redis longer java", "fence = :token|hangs", "before the lease|context"},
		{"watchdog", "may redis longer go", "hangs|context.WithTimeout", "UNIQUE|fence"},
	} {
		i := slices.IndexFunc(f.Options, func(o Option) bool { return o.Strategy == tt.strategy })
		var text strings.Builder
		for _, d := range f.Options[i].Duties(answersOf(t, tt.answers)) {
			text.WriteString(d.Do + "\n" + strings.Join(d.Code, "\n") + "\n")
		}
		for _, want := range strings.Split(tt.want, "|") {
			if !strings.Contains(text.String(), want) {
				t.Errorf("%s, %s: the duties lack %q:\n%s", tt.strategy, tt.answers, want, text.String())
			}
		}
		for _, lacks := range strings.Split(tt.lacks, "|") {
			if strings.Contains(text.String(), lacks) {
				t.Errorf("%s, %s: the duties must not contain %q:\n%s", tt.strategy, tt.answers, lacks, text.String())
			}
		}
	}
}

// TestAdviceKeepsOrders checks that Advise always returns a lock, and never a lock that lets two
// drivers win if the answers exclude it.
func TestAdviceKeepsOrders(t *testing.T) {
	f := KnownFacts()
	for _, rows := range Questions[0].Answers {
		for _, runs := range Questions[1].Answers {
			for _, work := range Questions[2].Answers {
				for _, stack := range Questions[3].Answers {
					fit, err := f.Advise(Answers{rows.Name, runs.Name, work.Name, stack.Name})
					if err != nil || len(fit) == 0 || len(fit) > maxAdvised {
						t.Errorf("Advise: %s %s %s: %v, %v", rows.Name, runs.Name, work.Name, fit, err)
					}
					if rows.Name != "may" && slices.ContainsFunc(fit, func(o Option) bool { return len(o.Twice) > 0 }) {
						t.Errorf("advice for %s %s %s includes a lock that lets two drivers win: %v", rows.Name, runs.Name, work.Name, fit)
					}
				}
			}
		}
	}
}

// TestGuideIsComplete checks that each stack lists exactly the recommended strategies that exist for its
// language.
func TestGuideIsComplete(t *testing.T) {
	for _, s := range Guide.Stacks {
		for _, name := range Choices {
			if _, ok := s.Locks[name]; ok == (name == "handoff" && s.Name != "go") {
				t.Errorf("%s: the entry of %s exists: %v", s.Name, name, ok)
			}
		}
		for name := range s.Locks {
			if !slices.Contains(Choices, name) {
				t.Errorf("%s: %s is not a recommended strategy", s.Name, name)
			}
		}
	}
}

// TestPageAgreesWithAdvice checks that the first table in docs/which-lock.md recommends the lock
// that Advise returns first, with the same cost.
func TestPageAgreesWithAdvice(t *testing.T) {
	f := KnownFacts()
	page, err := os.ReadFile("../../../docs/which-lock.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		row, answers string
		place        int // in Advise's result
	}{
		{"| a write in one conditional UPDATE | no lock: `mysql-cas` |", "update database shorter other", 0},
		{"| one row for each order in a table of grants | no lock: `mysql-unique` |", "update database shorter other", 1},
		{"| expensive work, Redis, Go | `handoff` with its token |", "never redis longer go", 0},
		{"| expensive work, Redis, Java | Redisson's renewed `RFencedLock`, token |", "never redis longer java", 0},
		{"| expensive work, Redis, Python | `setnx-fenced` |", "never redis shorter python", 0},
		{"| expensive work, only a database | `mysql-getlock` |", "never database longer other", 0},
		{"| expensive work, only a database | `mysql-forupdate` |", "never database longer other", 1},
	} {
		answers := answersOf(t, tt.answers)
		fit, err := f.Advise(answers)
		if err != nil {
			t.Fatal(err)
		}
		o := fit[tt.place]
		_, rest, found := strings.Cut(string(page), "\n"+tt.row+" ")
		cost, _, _ := strings.Cut(rest, " |")
		if how := FindStack(answers.Stack).Locks[o.Strategy]; !found || !strings.Contains(tt.row, "`"+o.Strategy+"`") && !strings.Contains(how, "`RFencedLock` without a lease time") {
			t.Errorf("the view advises %s (%s), but the page has %q: %v", o.Strategy, how, tt.row, found)
		}
		if o.Statements == nil || cost != "not measured" && cost != o.Interval+" round trips" && cost != fmt.Sprintf("%.2f statements", *o.Statements) {
			t.Errorf("%s: the cost is %q on the page, but the view has %+v", o.Strategy, cost, o)
		}
	}
}
