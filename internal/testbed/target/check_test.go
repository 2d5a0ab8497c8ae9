package target

import (
	"net/http"
	"strings"
	"testing"
)

// errorOf returns a function that parses text and returns only the error.
func errorOf[T any](parse func(string) (T, error)) func(string) error {
	return func(text string) error { _, err := parse(text); return err }
}

// TestParsers gives each parser of a single flag valid and invalid values.
func TestParsers(t *testing.T) {
	for _, tt := range []struct {
		parse  func(string) error
		valid  []string
		broken map[string]string // invalid values, each with a part of its error
	}{
		{errorOf(ParsePath), []string{"/", "/orders/{order}/grab", "/o/{order_uuid}?d={driver}", "/o/{driver_name}/{driver_uuid}"}, map[string]string{
			"": "must be a path", "orders": "must be a path", "http://h/": "must be a path", "/a b": "must be a path", "/a#b": "must be a path", "/a\tb": "must be a path", "/{count}": "count",
		}},
		{errorOf(ParseBody), []string{"", "{}", `{"o":{order},"d":{driver}}`, `"{order_uuid}" "{driver_uuid}" "{driver_name}"`}, map[string]string{`{"n":{first}}`: "first"}},
		{errorOf(ParseHeader), []string{"X-User: {driver}", "X:", "X-Y:{order}"}, map[string]string{"X-User": "NAME: VALUE", "X User: 1": "NAME: VALUE", "X: a\nb": "NAME: VALUE", "X: {count}": "X: ", ": 1": "NAME: VALUE"}},
		{errorOf(ParseOpening), []string{
			"/orders", "POST /o", `put /o {"n":{count}} -> .data.firstId`, `/o -> header:Location~"/o/(.+)$"`, "sql: UPDATE o SET s = 0 WHERE id = {order}", "sql:DELETE FROM o WHERE id BETWEEN {first} AND {last}",
		}, map[string]string{
			"": "must be a call", "orders": "must be a call", "POST orders": "must be a call", "P(ST /o": "must be a call", "/o {driver}": "driver", "/o{order}": "order", "/o -> id": "must say where the id is", "/o ->": "must say where the id is",
			"sql:": "{order}", "sql: DELETE FROM o WHERE id = {order} OR id > {first}": "{order}", "sql: DELETE FROM o WHERE d = {driver}": "driver",
		}},
		{errorOf(ParseMethod), []string{"get", "POST", "GRAB-IT"}, map[string]string{"": "must be a method", "P ST": "must be a method", "P/ST": "must be a method"}},
	} {
		for _, text := range tt.valid {
			if err := tt.parse(text); err != nil {
				t.Errorf("parse(%q): %v", text, err)
			}
		}
		for text, want := range tt.broken {
			if err := tt.parse(text); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("parse(%q) = %v, want …%s…", text, err, want)
			}
		}
	}
	if got, _ := ParseMethod("put"); got != http.MethodPut {
		t.Errorf("put is the method %q", got)
	}
}

// TestIsOwn sets one field of a specification at a time. If the field describes a grab, the
// specification must no longer count as our own service.
func TestIsOwn(t *testing.T) {
	for _, spec := range []Spec{{}, {OpenOrders: []string{"/orders"}}} {
		if !spec.IsOwn() {
			t.Errorf("%+v does not count as our own service", spec)
		}
	}
	for _, spec := range []Spec{
		{Method: "PUT"}, {Path: "/"}, {Body: new(string)}, {Headers: []string{}}, {Grabbed: "200"}, {Taken: "409"}, {Busy: "423"}, {Later: "202 -> /r"},
	} {
		if spec.IsOwn() {
			t.Errorf("%+v counts as our own service", spec)
		}
	}
}

// TestOrderTexts converts order numbers to the texts in requests, and back.
func TestOrderTexts(t *testing.T) {
	numbered, _, err := Spec{Path: "/o/{order}"}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	named, _, err := Spec{Path: "/o/{order_uuid}"}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := named.IDs.Add([]string{"t-1"}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		shape  *Shape
		number int64
		text   string
	}{{numbered, 17, "17"}, {nil, 17, "17"}, {named, 1, "t-1"}, {named, 17, "6f726465-7200-4000-8000-000000000011"}} {
		if got := tt.shape.OrderText(tt.number); got != tt.text {
			t.Errorf("order %d is written as %q, want %q", tt.number, got, tt.text)
		}
		if got, ok := tt.shape.NumberOf(tt.text); !ok || got != tt.number {
			t.Errorf("%q is order %d, %v, want %d", tt.text, got, ok, tt.number)
		}
		if got, ok := tt.shape.NumberOf("unknown"); ok {
			t.Errorf("an unknown text is order %d", got)
		}
	}
}

// TestResultURLs reads the URL of a result from each part of a response that may contain it.
func TestResultURLs(t *testing.T) {
	for _, tt := range []struct {
		later, body, header string
		status              int
		url, why            string
	}{
		{"202 -> /r/{order}/{driver}", "", "", 202, "/r/7/3", ""},
		{"202 -> /r/{order}/{driver}", "", "", 200, "", ""},
		{"202 -> .url", `{"url":"/x"}`, "", 202, "/x", ""},
		{"202 -> .url", `{"url":""}`, "", 202, "", `has no URL of the result at the place after "->": {"url":""}`},
		{"202 -> .url", " {} \n", "", 202, "", `has no URL of the result at the place after "->": {}`},
		{"202 -> .url", strings.Repeat("x", 300), "", 202, "", strings.Repeat("x", 150)},
		{"202 -> header:Location", "", "/h", 202, "/h", ""},
		{"202 -> header:Location", "", "", 202, "", "the answer 202 has no header Location (it has Date, Server)"},
	} {
		s, _, err := Spec{Path: "/o/{order}", Grabbed: "200", Later: tt.later}.Compile()
		if err != nil {
			t.Fatalf("Compile with later %s: %v", tt.later, err)
		}
		header := http.Header{"Server": {"s"}, "Date": {"d"}}
		if tt.header != "" {
			header.Set("Location", tt.header)
		}
		url, undecided, err := s.ResultURL("", 7, 3, tt.status, header, []byte(tt.body))
		if url != tt.url || undecided != (tt.status == 202) || (err == nil) != (tt.why == "") || err != nil && !strings.Contains(err.Error(), tt.why) {
			t.Errorf("ResultURL(%+v): %q, %v, %v", tt, url, undecided, err)
		}
	}
}
