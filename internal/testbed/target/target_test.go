package target

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/grab"
)

func TestTemplate(t *testing.T) {
	names := []string{"order", "driver"}
	for _, tc := range []struct{ text, want, wrong string }{
		{text: "/orders/{order}/grab", want: "/orders/7/grab"},
		{text: `{"driverId":{driver},"of":[{order},{order}]}`, want: `{"driverId":42,"of":[7,7]}`},
		{text: `{"driverId":"{driver}"}`, want: `{"driverId":"42"}`},
		{text: "{}{ }{1}{", want: "{}{ }{1}{"},
		{text: "", want: ""},
		{text: "/{ordr}", wrong: "did you mean {order}?"},
		{text: "/{xyzzyplugh}", wrong: "use {order}, {driver}"},
	} {
		got, err := ParseTemplate(tc.text, names...)
		if tc.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), tc.wrong) {
				t.Errorf("ParseTemplate(%q): error %v; want …%s…", tc.text, err, tc.wrong)
			}
			continue
		}
		if filled := string(got.grab(nil, 7, 42, nil)); err != nil || filled != tc.want || got.String() != tc.text {
			t.Errorf("ParseTemplate(%q): filled %q, text %q, %v; want %q", tc.text, filled, got, err, tc.want)
		}
	}
}

func TestRules(t *testing.T) {
	const ok, failed = `{"code":0,"data":{"ids":[3,5],"a b":true},"msg":"OK","none":null}`, `{"status":500,"error":"internal"}`
	for _, tc := range []struct {
		rule   string
		status int
		body   string
		want   bool
	}{
		{"200", 200, "", true},
		{"200", 201, "", false},
		{"2xx", 299, "", true},
		{"2XX", 300, "", false},
		{"409,410", 410, "", true},
		{"409, 410", 411, "", false},
		{"json:.code==0", 200, ok, true},
		{"json:.code == 0", 200, ok, true},
		{"json:.code==0.0", 200, ok, true},
		{"json:.code==1", 200, ok, false},
		{"json:.code!=1", 200, ok, true},
		{`json:.msg=="OK"`, 200, ok, true},
		{`json:.msg=="O,K"`, 200, `{"msg":"O,K"}`, true},
		{`json:.msg=="no",410`, 410, "", true},
		{"json:.data.ids[1]==5", 200, ok, true},
		{"json:.data.ids[2]==5", 200, ok, false},
		{`json:.data."a b"==true`, 200, ok, true},
		{"json:.none==null", 200, ok, true},
		{"json:.data!=null", 200, ok, true},
		{"json:.==true", 200, "true", true},
		{`json:.=="won"`, 200, ` "won" `, true},
		{"json:.[0]==1", 200, "[1]", true},
		{"json:.big==9007199254740993", 200, `{"big":9007199254740992}`, false},
		// A missing field matches neither == nor !=.
		{"json:.missing==null", 200, ok, false},
		{"json:.code!=0", 200, `{"timestamp":1}`, false},
		{"json:.code!=0", 200, "<html>", false},
		{"json:.code!=0", 200, `{"code":1} and more`, false},
		{"json:.code!=0", 200, "", false},
		// A rule about a field matches a 5xx response only if the rule includes the status.
		{"json:.status!=0", 500, failed, false},
		{"json:.status!=0", 499, failed, true},
		{"500&json:.status==500", 500, failed, true},
		{"5xx&json:.status!=500", 503, failed, false},
		{"200&json:.code==0", 201, ok, false},
	} {
		r, err := ParseRule(tc.rule)
		if err != nil {
			t.Errorf("ParseRule(%s): %v", tc.rule, err)
			continue
		}
		shape := Shape{Grabbed: r}
		shape.prepare()
		if got := shape.Meaning(tc.status, nil, []byte(tc.body)).Outcome == grab.Grabbed; got != tc.want {
			t.Errorf("%s of %d %s: %v", tc.rule, tc.status, tc.body, got)
		}
		if again, err := ParseRule(r.String()); err != nil || !reflect.DeepEqual(again, r) {
			t.Errorf("%s becomes %s: %v", tc.rule, r, err)
		}
	}
}

// TestStatusRules parses each number below 1,100 and each pattern such as 4xx as a rule. A valid rule
// must match its statuses, but not their neighbours.
func TestStatusRules(t *testing.T) {
	for status := range 1100 {
		for text, last := range map[string]int{fmt.Sprint(status): status, fmt.Sprintf("%dxx", status/100): status + 99} {
			if last > status && status%100 != 0 {
				continue
			}
			r, err := ParseRule(text)
			if valid := status >= 100 && status <= 599; (err == nil) != valid {
				t.Errorf("ParseRule(%s): %v", text, err)
			}
			if err != nil {
				continue
			}
			shape := Shape{Grabbed: r}
			shape.prepare()
			for reply, want := range map[int]bool{status - 1: false, status: true, last: true, last + 1: false} {
				if got := shape.Meaning(reply, nil, nil).Outcome == grab.Grabbed; got != want {
					t.Errorf("%s matches %d: %v", text, reply, got)
				}
			}
		}
	}
}

// TestMeaningOfCutBody checks that rules about the body never match a body that was cut. A rule about
// the status still matches.
func TestMeaningOfCutBody(t *testing.T) {
	for _, size := range []int{MaxBody, MaxBody + 1, 2 * MaxBody} {
		body := fmt.Appendf(nil, "%-*s", size, `{"code":0}`)
		for _, rule := range []string{"json:.code==0", "json:.code!=1", "xml:/code==0", "text:~`code`", "text:!~`nothing`", "200"} {
			body := body
			if strings.HasPrefix(rule, "xml") {
				body = fmt.Appendf(nil, "%-*s", size, "<code>0</code>")
			}
			shape, _, err := Spec{Grabbed: rule}.Compile()
			if err != nil {
				t.Fatal(err)
			}
			got := shape.Meaning(200, nil, body)
			cut := size > MaxBody && rule != "200"
			if (got.Outcome == grab.Grabbed) == cut || strings.Contains(got.Kind, "cut at 16 KiB") != cut {
				t.Errorf("%s of %d bytes: %+v", rule, size, got)
			}
		}
	}
}

func TestBadRules(t *testing.T) {
	for rule, want := range map[string]string{
		"":                    "write statuses or fields",
		"20":                  "write statuses or fields",
		"600":                 "write statuses or fields",
		"200,":                "write statuses or fields",
		"200 409":             "put a comma",
		"ok":                  "write statuses or fields",
		"200&ok":              "write statuses or fields",
		"json:code==0":        "a path must consist of .NAME",
		"json:.code=0":        "use == or !=",
		"json:.code":          "use == or !=",
		"json:.code==":        "write a JSON value after",
		"json:.code==OK":      "write a JSON value after",
		"json:.code=={}":      "to compare with",
		"json:.code==[1]":     "to compare with",
		"json:.a..b==1":       "a path must consist of .NAME",
		"json:==0":            "a path must consist of .NAME",
		"json:[0]==1":         "a path must consist of .NAME",
		"json:.a[x]==1":       "a path must consist of .NAME",
		"json:.a[-1]==1":      "a path must consist of .NAME",
		"json:.a,json:.b==1":  "use == or !=",
		`json:."\x"==1`:       "invalid character",
		`json:."a==1`:         "use == or !=",
		"json:.code==0 409":   "put a comma",
		"json:.code==0&200":   "commas",
		"200&json:.code==0,x": "write statuses or fields",
	} {
		r, err := ParseRule(rule)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseRule(%q): %v, %v; want …%s…", rule, r, err, want)
		}
		if strings.Contains(fmt.Sprint(err), "%!") {
			t.Errorf("ParseRule(%q): the error is formatted wrongly: %v", rule, err)
		}
	}
}

// TestRulesOnWholeReplies checks rules about text, XML and headers.
func TestRulesOnWholeReplies(t *testing.T) {
	const shop = `<?xml version="1.0"?><s:grab xmlns:s="urn:x" won="yes"><code>0</code><note> sold <b>out</b> </note><code>1</code></s:grab>`
	sold := http.Header{"Location": {"/orders/7/sold"}, "X-Two": {"a", "b"}}
	for _, tt := range []struct {
		rule, body string
		status     int
		want       bool
	}{
		{`text:=="won"`, " won\n", 200, true},
		{`text:=="won"`, "wont", 200, false},
		{`text:!="won"`, "wont", 200, true},
		{"text:~`^w.n$`", "won", 200, true},
		{`text:!~"sold out"`, "sorry, sold out", 200, false},
		{`text:~"sold"`, "sold", 500, false},
		{`500&text:~"sold"`, "sold", 500, true},
		{`200&text:~"a"&text:~"b"`, "ab", 200, true},
		{`200&text:~"a"&text:~"b"`, "a", 200, false},
		{`text:~"x"`, strings.Repeat("x", MaxBody+1), 200, false},
		{`text:!~"y"`, strings.Repeat("x", MaxBody+1), 200, false},
		{"xml:/grab/code==0", shop, 200, true},
		{"xml:/grab/code!=1", shop, 200, true},
		{`xml:/grab/code~"1"`, shop, 200, false}, // the first one counts
		{`xml:/grab/@won=="yes"`, shop, 200, true},
		{`xml:/grab/@lost!="yes"`, shop, 200, false},
		{`xml://note=="sold out"`, shop, 200, true},
		{`xml:/code==0`, shop, 200, false},
		{`xml:/grab/code==0`, shop[:len(shop)-1], 200, false},
		{`xml:/grab/code==0`, `{"code":0}`, 200, false},
		{`header:Location~"/sold$"`, "", 303, true},
		{"header:location!~`/won$`", "", 303, true},
		{`header:X-None!="a"`, "", 200, false},
		{`header:X-None!~"a"`, "", 200, false},
		{`header:X-Two=="a, b"`, strings.Repeat("x", MaxBody+1), 200, true},
		{"json:.code~`^1`", `{"code":12}`, 200, true},
		{"json:.code~`^1`", `{"code":[1]}`, 200, false},
		{"json:.code!~`^1`", `{}`, 200, false},
		{`409,text:~"a,b"&header:Location~"sold",410`, "a,b", 200, true},
	} {
		rule, err := ParseRule(tt.rule)
		if err != nil {
			t.Errorf("ParseRule(%s): %v", tt.rule, err)
			continue
		}
		s := Shape{Grabbed: rule}
		s.prepare()
		if got := s.Meaning(tt.status, sold, []byte(tt.body)).Outcome == grab.Grabbed; got != tt.want {
			t.Errorf("%s on %d %.80q: %v", tt.rule, tt.status, tt.body, got)
		}
		if again, err := ParseRule(rule.String()); err != nil || again.String() != rule.String() {
			t.Errorf("%s becomes %s: %v", tt.rule, rule, err)
		}
	}
	for text, want := range map[string]string{
		"text:won": "use == or !=", "text:~(": "backquotes", `text:~"("`: "regular expression", "text:~7": "regular expression",
		"xml:grab==0": "begin with a slash", "header:a b==1": "use == or !=", "header:==1": "header name is missing", `text:=="a"&409`: "write a test after each &", "text:~`a": "backquotes",
	} {
		if _, err := ParseRule(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseRule(%s): %v; want …%s…", text, err, want)
		}
	}
}

func TestMeaning(t *testing.T) {
	coded := Spec{Grabbed: "json:.code==0", Taken: "json:.code==1", Busy: "json:.code==2"}
	both := Spec{Taken: "json:.code==1"}
	for _, tc := range []struct {
		name   string
		spec   *Spec // nil: Own
		status int
		body   string
		want   Meaning
	}{
		{"own grabbed", nil, 200, "", Meaning{grab.Grabbed, false, ""}},
		{"own taken", nil, 409, "", Meaning{grab.Taken, false, ""}},
		{"own busy", nil, 423, "", Meaning{grab.Busy, false, ""}},
		{"own time-out", nil, 504, "", Meaning{grab.Timeout, true, "http 504"}},
		{"own error wrote nothing", nil, 503, "", Meaning{grab.Failed, false, "http 503"}},
		{"own panic", nil, 500, "", Meaning{grab.Failed, true, "http 500"}},
		{"a service's 503", &Spec{}, 503, "", Meaning{grab.Failed, true, "http 503"}},
		{"a service's 500", &Spec{}, 500, "", Meaning{grab.Failed, true, "http 500"}},
		{"a service's 504", &Spec{}, 504, "", Meaning{grab.Timeout, true, "http 504"}},
		{"refused", &Spec{}, 404, "", Meaning{grab.Failed, false, "http 404"}},
		{"the handler may go on after 408", &Spec{}, 408, "", Meaning{grab.Timeout, true, "http 408"}},
		{"the handler may go on after 499", &Spec{}, 499, "", Meaning{grab.Timeout, true, "http 499"}},
		{"a given rule takes 408", &Spec{Busy: "408"}, 408, "", Meaning{grab.Busy, false, ""}},
		{"a success that no rule knows", &Spec{}, 202, "", Meaning{grab.Failed, true, "http 202"}},
		{"a redirect", &Spec{}, 302, "", Meaning{grab.Failed, true, "http 302"}},
		{"code 0", &coded, 200, `{"code":0}`, Meaning{grab.Grabbed, false, ""}},
		{"code 1", &coded, 200, `{"code":1}`, Meaning{grab.Taken, false, ""}},
		{"code 2", &coded, 200, `{"code":2}`, Meaning{grab.Busy, false, ""}},
		{"a code that no rule knows", &coded, 200, `{"code":3}`, Meaning{grab.Failed, true, "http 200"}},
		{"no code", &coded, 200, `oops`, Meaning{grab.Failed, true, "http 200"}},
		{"code 1 of a failure", &coded, 500, `{"code":1}`, Meaning{grab.Failed, true, "http 500"}},
		{"two rules at once", &both, 200, `{"code":1}`, Meaning{grab.Failed, true, "both grabbed and taken"}},
		{"a given rule takes 423 from busy", &Spec{Taken: "409,423"}, 423, "", Meaning{grab.Taken, false, ""}},
		{"a given rule takes 409 from taken", &Spec{Grabbed: "4xx"}, 409, "", Meaning{grab.Grabbed, false, ""}},
	} {
		shape := Own
		if tc.spec != nil {
			var err error
			if shape, _, err = tc.spec.Compile(); err != nil {
				t.Fatalf("%s: Compile: %v", tc.name, err)
			}
		}
		if got := shape.Meaning(tc.status, nil, []byte(tc.body)); got != tc.want {
			t.Errorf("%s: Meaning: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

func TestRequest(t *testing.T) {
	for _, tc := range []struct {
		spec       Spec
		path, body string
		header     http.Header
	}{
		{Spec{}, "/orders/7/grab", `{"driver_id":42}`, http.Header{"Content-Type": {"application/json"}}},
		{
			Spec{Path: "/api/grab?id={order}", Body: new("d={driver}"), Headers: []string{"content-type: application/x-www-form-urlencoded", "X-User: u{driver}", "X-A: 1", "X-A: 2"}},
			"/api/grab?id=7", "d=42",
			http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "X-User": {"u42"}, "X-A": {"1", "2"}},
		},
		{Spec{Method: "get", Path: "/grab/{order}/{driver}"}, "/grab/7/42", "", http.Header{}},
		{Spec{Body: new(""), Path: "/grab/{order}/{driver}"}, "/grab/7/42", "", http.Header{}},
	} {
		s, _, err := tc.spec.Compile()
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the first call must not change data that the second one uses
			path, body, header := s.Request(7, 42)
			if s.Method != cmp.Or(strings.ToUpper(tc.spec.Method), "POST") || string(path) != tc.path || string(body) != tc.body || !reflect.DeepEqual(header, tc.header) {
				t.Errorf("%+v: Request: %s %s %s %v", tc.spec, s.Method, path, body, header)
			}
		}
	}
}

func TestBadSpecs(t *testing.T) {
	for _, tc := range []struct {
		spec Spec
		says string
	}{
		{Spec{Path: "grab"}, "path: \"grab\": must be a path after the base URL"},
		{Spec{Path: "http://h/{order}"}, "must be a path after the base URL"},
		{Spec{Path: "/a#b/{order}"}, "must be a path after the base URL"},
		{Spec{Path: "PUT /orders/{order}"}, "such as /orders/{order}/grab, and the method must be in method"},
		{Spec{Path: "/{ordre}"}, "path: there is no placeholder {ordre}; did you mean {order}?"},
		{Spec{Path: "/grab"}, "every grab would be for the same order"},
		{Spec{Body: new("{drivr}")}, "body: there is no placeholder"},
		{Spec{Body: new("mutation{grab(order:{order}){ok}}")}, "or write { ok } for plain text"},
		{Spec{Headers: []string{"no colon"}}, "header: must be NAME: VALUE"},
		{Spec{Headers: []string{"bad name: x"}}, "header: must be NAME: VALUE"},
		{Spec{Headers: []string{"A: {nobody}"}}, "header: A: there is no placeholder"},
		{Spec{Grabbed: "ok"}, "grabbed: write statuses"},
		{Spec{Taken: "409", Busy: "4xx"}, "busy: a response with status 409 matches the rules for both taken and busy"},
		{Spec{Taken: "200"}, "grabbed: no rule matches a winner's response"},
		{Spec{Later: "202"}, "later: \"202\": must be RULE -> PLACE"},
		{Spec{Later: "x -> .at"}, "later: write statuses"},
		{Spec{Later: "202 -> .at[0"}, "later: "},
		{Spec{Later: "202 -> /{ordre}"}, "later: there is no placeholder {ordre}"},
		{Spec{Later: "202 -> /{ordre}/{.id}"}, "later: there is no placeholder {ordre}"},
		{Spec{Later: "202 -> /{.id}/{ordre}"}, "later: there is no placeholder {ordre}"},
		{Spec{Later: "202 -> /{json:id}"}, "later: "},
		{Spec{Later: "202 -> .at"}, "later: this service may respond with 200 to a loser"},
		{Spec{Later: "202 -> .at", Grabbed: "2xx"}, "later: a response with status 202 matches the rule later"},
		{Spec{Later: "202 -> .at", Grabbed: "200", Taken: "202"}, "later: a response with status 202 matches the rule later"},
		{Spec{Later: "202 -> .at", Grabbed: "200", Busy: "202"}, "later: a response with status 202 matches the rule later"},
		{Spec{OpenOrders: []string{"orders"}}, "open-orders: must be a call"},
		{Spec{OpenOrders: []string{"/a", "/b"}}, "open-orders: the value must be either one HTTP call or a list of SQL statements"},
		{Spec{OpenOrders: []string{"/a -> id"}}, `open-orders: "id": must say where the id is`},
		{Spec{Path: "/{order}/{order_uuid}"}, "path: {order} and {order_uuid} are different ids"},
		{Spec{OpenOrders: []string{"sql:"}}, "the statement must contain {order}"},
		{Spec{OpenOrders: []string{"sql: x {order} {first}"}}, "the statement must contain {order}"},
		{Spec{OpenOrders: []string{"sql: x {frist}"}}, "did you mean {first}?"},
	} {
		if _, _, err := tc.spec.Compile(); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: Compile: %v; want …%s…", tc.spec, err, tc.says)
		}
		if _, _, err := tc.spec.Compile(); strings.Contains(fmt.Sprint(err), "%!") {
			t.Errorf("%+v: the error is formatted wrongly: %v", tc.spec, err)
		}
	}
}

func TestOpenings(t *testing.T) {
	for _, tc := range []struct {
		text, method, path, body, answer, id string
		opensMany                            bool
	}{
		{"/orders", "POST", "/orders", `{"count":3}`, `{"first_id":9}`, "9", true},
		{`put /api/orders?n={count} {"n": {count}, "x": "->"} -> .data.ids[0]`, "PUT", "/api/orders?n=3", `{"n": 3, "x": "->"}`, `{"data":{"ids":[5,6]}}`, "5", true},
		{"/orders?n={count} {} -> .", "POST", "/orders?n=3", `{}`, `7`, "7", true},
		{"/orders {count} -> .", "POST", "/orders", `3`, `7`, "7", true},
		{"/orders -> .", "POST", "/orders", `{"count":3}`, `7`, "7", true},
		{`/orders {"price":5} -> .`, "POST", "/orders", `{"price":5}`, `7`, "7", false},
	} {
		_, open, err := Spec{OpenOrders: []string{tc.text}}.Compile()
		if err != nil {
			t.Errorf("Compile of the opening %s: %v", tc.text, err)
			continue
		}
		path, body := open.Call(3)
		id := strings.Join(open.ID.In(nil, []byte(tc.answer)), " ")
		if !open.ByCall() || open.Method != tc.method || path != tc.path || string(body) != tc.body || id != tc.id {
			t.Errorf("%s: %s %s %s, first %v", tc.text, open.Method, path, body, id)
		}
		if open.OpensMany() != tc.opensMany {
			t.Errorf("%s: opens many %v, want %v", tc.text, open.OpensMany(), tc.opensMany)
		}
	}
	_, open, err := Spec{OpenOrders: []string{"sql:DELETE FROM wins WHERE o BETWEEN {first} AND {last}", "sql: INSERT INTO o VALUES ({order})"}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"DELETE FROM wins WHERE o BETWEEN 5 AND 6", "INSERT INTO o VALUES (5)", "INSERT INTO o VALUES (6)"}
	if got := open.Statements(5, 2); open.ByCall() || !reflect.DeepEqual(got, want) {
		t.Errorf("Statements: %q, want %q", got, want)
	}
}

func TestFile(t *testing.T) {
	t.Setenv("SHOP_TOKEN", "s3cret")
	path := filepath.Join(t.TempDir(), "my.yaml")
	text := `# our shop
targets: [http://a:1, http://b:1/shop]
path: /api/orders/{order}/grab
body: '{"driverId":{driver}}'
header:
  - 'Authorization: Bearer ${SHOP_TOKEN}'
  - "X-Literal: {driver}"
grabbed: 200
taken: 409,410
busy: json:.code==2
first-order: 101
probe-drivers: 501
open-orders: |
  sql: UPDATE orders SET status = 0
    WHERE id BETWEEN {first} AND {last}
ledger-query: >-
  SELECT order_id, driver_id
  FROM wins WHERE order_id BETWEEN ? AND ?
lease: 30s
target-pid: [11, 12]
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := ReadFile(path)
	want := []Setting{
		{"targets", "http://a:1,http://b:1/shop", 2, 11}, {"path", "/api/orders/{order}/grab", 3, 7}, {"body", `{"driverId":{driver}}`, 4, 7},
		{"header", "Authorization: Bearer s3cret", 6, 5}, {"header", "X-Literal: {driver}", 7, 5},
		{"grabbed", "200", 8, 10}, {"taken", "409,410", 9, 8}, {"busy", "json:.code==2", 10, 7}, {"first-order", "101", 11, 14}, {"probe-drivers", "501", 12, 16},
		{"open-orders", "sql: UPDATE orders SET status = 0\n  WHERE id BETWEEN {first} AND {last}\n", 13, 14},
		{"ledger-query", "SELECT order_id, driver_id FROM wins WHERE order_id BETWEEN ? AND ?", 16, 15}, {"lease", "30s", 19, 8},
		{"target-pid", "11,12", 20, 14},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("parseFile: error %v\ngot  %+v\nwant %+v", err, got, want)
	}
}

func TestBadFiles(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "1:1: the file must be a single YAML document",
		"- a":                             "1:1: the file must be a single YAML document",
		"path: /a\nledger-qery: x":        `2:1: there is no key "ledger-qery"; did you mean ledger-query?`,
		"path: /a\nxyzzyplugh: x":         `2:1: there is no key "xyzzyplugh"; there are admin-token, body,`,
		"path: /a\n\nbody: {a: 1}":        "3:7: body: must be a text, and not an object: put text that begins with a brace, or contains a colon and a space, in quotes",
		"path: /a\npath: /b":              "2:1: ",
		"path: /a\nready:/healthz":        "2:1: non-map value is specified: write a line as NAME: VALUE with a space after the colon",
		"ready:/healthz\npath: /a":        "1:1: unexpected key name: write a line as NAME: VALUE with a space after the colon",
		"ready:/healthz":                  "1:1: the file must be a single YAML document with lines of the form NAME: VALUE",
		"ledger-query: |\nSELECT a":       "2:1: non-map value is specified: write a line as NAME: VALUE with a space after the colon, and indent the further lines",
		"path: /a\n body: x":              "check the indentation",
		"migrate:\n  - service\n - sql":   "3:2: value is not allowed in this context: check the indentation",
		"header: A: b":                    "put text that contains a colon and a space in quotes",
		"path: /a\n\tbody: x":             "2:1: found character '\t' that cannot start any token: indent with spaces instead of tabs",
		"a:\n  - b\n\tc: x":               "indent with spaces instead of tabs",
		"path: @a":                        "put the text in quotes",
		"path: %a":                        "put the text in quotes",
		"path: '/a":                       "add the second quote",
		"grabbed: [200]":                  "1:10: grabbed: must be a text, a number, true or false",
		"header: [[a]]":                   "1:10: header: must be a text, a number, true or false",
		"header: []":                      "1:9: header: the list is empty",
		"path:":                           "1:7: path: must be a text, a number, true or false",
		"path: &p /a\nready: *p":          "1:7: path: must be a text, a number, true or false",
		"path: /a\nheader:\n- a: b\n- 7":  "3:4: header: must be a text, and not an object",
		"path: [":                         "1:7: ",
		"a: 1\n---\nb: 2":                 "1:1: the file must be a single YAML document",
		"db: ${GRABLAB_NO_SUCH_VARIABLE}": "1:5: db: the environment variable GRABLAB_NO_SUCH_VARIABLE is not set: set it before the run",
	} {
		if got, err := parseFile([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parseFile(%q): %+v, %v; want …%s…", text, got, err, want)
		}
	}
	if _, err := ReadFile(filepath.Join(t.TempDir(), "none.yaml")); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// TestKeysWithLists checks that a target file can have a list exactly where its schema allows one.
func TestKeysWithLists(t *testing.T) {
	var schema struct {
		Properties map[string]struct {
			Ref  string `json:"$ref"`
			Type any
		}
	}
	if err := json.Unmarshal([]byte(FileSchema), &schema); err != nil {
		t.Fatal(err)
	}
	for key, p := range schema.Properties {
		types, _ := p.Type.([]any)
		allowed := p.Ref == "#/$defs/texts" || slices.Contains(types, any("array"))
		if _, err := parseFile([]byte(key + ": [1, 2]")); (err == nil) != allowed {
			t.Errorf("%s: the schema allows a list: %v; the file: %v", key, allowed, err)
		}
	}
}

func TestExpectations(t *testing.T) {
	got, err := parseExpectations([]byte("none: unsafe\nrlock:\n  none: safe\n  pause: unsafe\n"))
	want := []Expectation{{"none", catalog.NoFault, catalog.Unsafe, 1}, {"rlock", catalog.NoFault, catalog.Safe, 3}, {"rlock", catalog.Pause, catalog.Unsafe, 4}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("parseExpectations: %v, %v; want %v", got, err, want)
	}
	for text, want := range map[string]string{
		"none: unsave":                 `1:7: there is no verdict "unsave"; did you mean unsafe?`,
		"none:\n  paus: safe":          `2:3: there is no fault "paus"; did you mean pause?`,
		"none:\n  pause: 1":            `2:10: there is no verdict "1"`,
		"none: [safe]":                 "1:7: none: the verdict must be a text",
		"a: safe\nb:\n  earthquake: x": `3:3: there is no fault "earthquake"`,
	} {
		if got, err := parseExpectations([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parseExpectations(%q): %v, %v; want …%s…", text, got, err, want)
		}
	}
}

func FuzzTemplate(f *testing.F) {
	for _, text := range []string{"/orders/{order}/grab", `{"a":{driver}}`, "{", "{}", "{{order}}", "{ordr}", "\xff{order}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseTemplate(text, "order", "driver")
		if err != nil {
			return
		}
		if got.String() != text {
			t.Errorf("%q becomes %q", text, got)
		}
		want := strings.NewReplacer("{order}", "7", "{driver}", "42").Replace(text)
		if filled := string(got.grab(nil, 7, 42, nil)); filled != want {
			t.Errorf("%q is filled to %q, not %q", text, filled, want)
		}
	})
}

func FuzzRule(f *testing.F) {
	for _, text := range []string{"200", "2xx,409", "json:.code==0", `200&json:.a."b c"[3]!="x,y"`, "json:.==null", "json:.a==1e999999999", "json:.a[99999999999999999999]==1"} {
		f.Add(text, 200, []byte(`{"code":0,"a":[{"b c":1}]}`))
	}
	f.Fuzz(func(t *testing.T, text string, status int, body []byte) {
		r, err := ParseRule(text)
		if err != nil {
			return
		}
		again, err := ParseRule(r.String())
		if err != nil || again.String() != r.String() {
			t.Fatalf("%q becomes %q, and that %q: %v", text, r, again, err)
		}
		a, b := Shape{Grabbed: r}, Shape{Grabbed: again}
		a.prepare()
		b.prepare()
		if a.Meaning(status, nil, body) != b.Meaning(status, nil, body) {
			t.Errorf("%q and %q differ on %d %q", text, again, status, body)
		}
	})
}

func FuzzFile(f *testing.F) {
	for _, text := range []string{"path: /a/{order}\ngrabbed: 200\n", "targets: [http://a:1]\nheader:\n- 'a: b'\n", "{", "a: &x 1", "? [a]\n: b", "body: |\n  x\n", "path: !!binary x", "first-order: .inf", "a:\n b:\n  c:\n   d: 1"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		settings, err := parseFile(text)
		if err != nil {
			var line, column int
			if n, _ := fmt.Sscanf(err.Error(), "%d:%d:", &line, &column); n != 2 || line < 1 || column < 1 {
				t.Errorf("%q: the error has no line and column: %v", text, err)
			}
			return
		}
		for _, s := range settings {
			if !strings.Contains(FileSchema, `"`+s.Key+`"`) || s.Line < 1 {
				t.Errorf("setting from %q: %+v", text, s)
			}
		}
		_, _ = parseExpectations(text)
	})
}

// TestResultOfEachOutcome checks which statuses count as the result of a grab. A status must count
// exactly if it means that the driver won, lost or found the lock busy. 425 and 429 never count.
func TestResultOfEachOutcome(t *testing.T) {
	shape, _, err := Spec{Grabbed: "200", Taken: "409,410", Busy: "423", Later: "202,425 -> /results/{order}"}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	for status := 100; status < 600; status++ {
		m := shape.Meaning(status, nil, nil)
		told := slices.Contains([]int{200, 409, 410, 423}, status)
		if told != slices.Contains([]grab.Outcome{grab.Grabbed, grab.Taken, grab.Busy}, m.Outcome) || shape.IsResult(status, nil, nil) != told {
			t.Errorf("%d means %+v, and is a result: %v", status, m, shape.IsResult(status, nil, nil))
		}
		if _, undecided, err := shape.ResultURL("", 7, 42, status, nil, nil); err != nil || undecided != (status == 202 || status == 425) {
			t.Errorf("%d is undecided: %v, %v", status, undecided, err)
		}
	}
	wide, _, err := Spec{Grabbed: "2xx", Taken: "3xx", Busy: "4xx", Later: "100 -> /results/{order}"}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	for status := 200; status < 500; status++ {
		early := status == http.StatusTooEarly || status == http.StatusTooManyRequests
		if wide.IsResult(status, nil, nil) == early {
			t.Errorf("%d is a result: %v", status, !early)
		}
	}
}

// TestTextOfAnElement reads the text of random XML elements. The result must include the text of
// nested elements.
func TestTextOfAnElement(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 1))
	var build func(depth int) (xml, text string)
	build = func(depth int) (xml, text string) {
		for range r.IntN(4) {
			if depth == 0 || r.IntN(2) == 0 {
				word := string(rune('a' + r.IntN(26)))
				xml, text = xml+word, text+word
				continue
			}
			name := []string{"b", "code", "i"}[r.IntN(3)]
			inner, words := build(depth - 1)
			xml, text = xml+"<"+name+">"+inner+"</"+name+">", text+words
		}
		return xml, text
	}
	for range 500 {
		before, _ := build(2)
		inner, want := build(3)
		before = strings.ReplaceAll(before, "code", "i")
		body := "<grab>" + before + "<code>" + inner + "</code>after</grab>"
		if got, ok := inXML([]byte(body), "/grab/code"); !ok || got != want {
			t.Fatalf("inXML(%s): %q, %v; want %q", body, got, ok, want)
		}
	}
}

// TestIDsInResultURLs checks the URLs of results whose IDs contain special characters. The URL must
// contain the whole ID as a single path segment or query parameter.
func TestIDsInResultURLs(t *testing.T) {
	shape, _, err := Spec{Grabbed: "200", Taken: "409", Later: "202 -> /results/{.id}/of/{driver}"}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	query, _, err := Spec{Grabbed: "200", Taken: "409", Later: "202 -> /results?id={.id}&driver={driver}"}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	for c := rune(' '); c < 0x180; c++ {
		id := "a" + string(c) + "b"
		body, _ := json.Marshal(map[string]string{"id": id})
		at, undecided, err := shape.ResultURL("", 7, 3, 202, nil, body)
		if err != nil || !undecided {
			t.Fatalf("%q: ResultURL: %q, %v", id, at, err)
		}
		base, _ := url.Parse("http://127.0.0.1/orders/7")
		u, err := base.Parse(at)
		if err != nil || u.Path != "/results/"+id+"/of/3" || strings.Count(u.EscapedPath(), "/") != 4 || u.RawQuery != "" || u.Fragment != "" {
			t.Errorf("%q: %q leads to %v, %v", id, at, u, err)
		}
		at, _, _ = query.ResultURL("http://127.0.0.1/shop/", 7, 3, 202, nil, body)
		if u, err := url.Parse(at); err != nil || u.Path != "/shop/results" || u.Query().Get("id") != id || u.Query().Get("driver") != "3" {
			t.Errorf("%q: %q leads to %v, %v", id, at, u, err)
		}
	}
}

// TestPartsThatRulesRead puts a rule about the status, a header or the body in each place. The rule must
// decide the meaning of a matching response, and the shape must know which parts of a response it reads.
func TestPartsThatRulesRead(t *testing.T) {
	for outcome, set := range map[grab.Outcome]func(s *Spec, rule string){
		grab.Grabbed: func(s *Spec, rule string) { s.Grabbed = rule },
		grab.Taken:   func(s *Spec, rule string) { s.Taken = rule },
		grab.Busy:    func(s *Spec, rule string) { s.Busy = rule },
	} {
		for _, tt := range []struct {
			rule          string
			headers, body bool
		}{{"299", false, false}, {`299&header:X-Code=="a"`, true, false}, {"299&json:.code==1", false, true}} {
			var spec Spec
			set(&spec, tt.rule)
			s, _, err := spec.Compile()
			if err != nil {
				t.Fatal(err)
			}
			if s.ReadsHeaders != tt.headers || s.readsBody != tt.body {
				t.Errorf("%s: %s: reads headers %v, body %v", outcome, tt.rule, s.ReadsHeaders, s.readsBody)
			}
			if got := s.Meaning(299, http.Header{"X-Code": {"a"}}, []byte(`{"code":1}`)); got.Outcome != outcome {
				t.Errorf("%s: %s: the response means %+v", outcome, tt.rule, got)
			}
		}
	}
}
