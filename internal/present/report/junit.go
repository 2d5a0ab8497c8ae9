package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"grablab/internal/measure/experiment"
)

// junitSuite and the types below are the parts of the JUnit XML format that CI systems read.
type junitSuite struct {
	XMLName   xml.Name    `xml:"testsuite"`
	Name      string      `xml:"name,attr"`
	Tests     int         `xml:"tests,attr"`
	Failures  int         `xml:"failures,attr"`
	Errors    int         `xml:"errors,attr"`
	Skipped   int         `xml:"skipped,attr"`
	Time      string      `xml:"time,attr"`
	Timestamp string      `xml:"timestamp,attr"`
	Cases     []junitCase `xml:"testcase"`
	Output    string      `xml:"system-out"`
}

type junitCase struct {
	Class string `xml:"classname,attr"`
	Name  string `xml:"name,attr"`
	Time  string `xml:"time,attr,omitempty"`
	Cause *junitCause
}

// junitCause is the XML element failure, error or skipped. It says why a test did not pass.
type junitCause struct {
	XMLName xml.Name
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

// JUnit writes the test cases in the JUnit XML format. A case without a verdict becomes an error,
// and a case that did not run becomes a skipped test.
func JUnit(w io.Writer, run *experiment.Run, cases []Case) error {
	suite := junitSuite{
		Name: "loadgen " + run.ID, Tests: len(cases),
		Time: junitSeconds(run.DurationS), Timestamp: run.StartedAt.UTC().Format(time.DateOnly + "T" + time.TimeOnly),
		Output: strings.Join(head(run), "\n"),
	}
	for _, c := range cases {
		details, err := c.Details()
		if err != nil {
			return err
		}
		test := junitCase{Class: "loadgen", Name: c.Name}
		if c.Cell != nil {
			test.Class = c.Cell.Strategy
			if c.Cell.DurationS != nil {
				test.Time = junitSeconds(*c.Cell.DurationS)
			}
		}
		switch c.Result {
		case Failed:
			test.Cause = &junitCause{xml.Name{Local: "failure"}, c.Why, string(c.Result), details}
			suite.Failures++
		case Unknown:
			test.Cause = &junitCause{xml.Name{Local: "error"}, c.Why, string(c.Result), details}
			suite.Errors++
		case NotRun:
			test.Cause = &junitCause{XMLName: xml.Name{Local: "skipped"}, Message: c.Why}
			suite.Skipped++
		}
		suite.Cases = append(suite.Cases, test)
	}
	text, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	return err
}

func junitSeconds(s float64) string { return strconv.FormatFloat(s, 'f', 3, 64) }
