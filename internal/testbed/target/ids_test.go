package target

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// TestIDs checks that an order has the ID from the service or, if there is none, a UUID that contains
// its number. NumberOf must also accept UUIDs in upper case, because a ledger may contain them.
func TestIDs(t *testing.T) {
	s := &IDs{}
	added := []string{"t-1", "T-1", "6B4E03C2-1D8B-4C3E-9F00-0123456789AB"}
	first, err := s.Add(added)
	if err != nil || first != 1 {
		t.Fatal(first, err)
	}
	for i, id := range added { // the case must not change, because some services compare UUIDs as text
		if got := s.Order(int64(i) + 1); got != id {
			t.Errorf("order %d has the id %s, want %s", i+1, got, id)
		}
	}
	if next, err := s.Add([]string{"x"}); err != nil || next != 4 || s.Order(4) != "x" {
		t.Errorf("the next order is %d, %v", next, err)
	}
	for id, want := range map[string]int64{
		"t-1": 1, "T-1": 2, "6b4e03c2-1d8b-4c3e-9f00-0123456789ab": 3, "6B4E03C2-1D8B-4C3E-9F00-0123456789AB": 3, "t-2": 0,
		s.Order(17): 17, strings.ToUpper(s.Order(17)): 17, "": 0,
	} {
		if got, ok := s.NumberOf(id); ok != (want > 0) || ok && got != want {
			t.Errorf("%s is order %d, %v; want %d", id, got, ok, want)
		}
	}
	for _, wrong := range []struct{ id, says string }{
		{"a/b", "must have 1 to 200 letters"}, {"a b", "must have"}, {`a"`, "must have"}, {"", "must have"}, {"t-1", "with the same id t-1"},
	} {
		if _, err := s.Add([]string{wrong.id}); err == nil || !strings.Contains(err.Error(), wrong.says) {
			t.Errorf("Add(%q) = %v, want …%s…", wrong.id, err, wrong.says)
		}
	}
	for id, want := range map[string]int64{
		"7": 7, "driver-7": 7, "64726976-6572-4000-8000-00003b9aca07": 1000000007, "64726976-6572-4000-8000-00003B9ACA07": 1000000007,
		"me": 0, "": 0, "driver-": 0, "6f726465-7200-4000-8000-000000000007": 0,
	} {
		if got, ok := DriverOf(id); ok != (want > 0) || ok && got != want {
			t.Errorf("%q is driver %d, %v; want %d", id, got, ok, want)
		}
	}
}

func TestNamedRequests(t *testing.T) {
	s, open, err := Spec{
		Path: "/o/{order_uuid}", Body: new(`{"who":"{driver_uuid}"}`), Headers: []string{"X-User: {driver_name}"},
		OpenOrders: []string{`POST /o {} -> header:Location~"/o/(.+)$"`},
	}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if !s.NamesOrders() || !s.TellsDrivers() || open.OpensMany() {
		t.Errorf("names orders: %v, tells drivers: %v, opens many: %v; want true, true, false", s.NamesOrders(), s.TellsDrivers(), open.OpensMany())
	}
	ids := open.ID.In(http.Header{"Location": {"http://h/o/abc-1"}}, nil)
	if first, err := s.IDs.Add(ids); err != nil || first != 1 {
		t.Fatal(first, err)
	}
	path, body, header := s.Request(1, 42)
	if string(path) != "/o/abc-1" || string(body) != `{"who":"64726976-6572-4000-8000-00000000002a"}` || header.Get("X-User") != "driver-42" {
		t.Errorf("Request: %s %s %v", path, body, header)
	}
	_, open, err = Spec{Path: "/o/{order_uuid}", OpenOrders: []string{"sql: INSERT INTO o VALUES ('{order_uuid}')"}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if got := open.Statements(7, 1)[0]; got != "INSERT INTO o VALUES ('6f726465-7200-4000-8000-000000000007')" {
		t.Error(got)
	}
}

// TestIDsArriveUnchanged checks that a server reads the exact ID of an order from each part of a
// request that can contain it. The ID has all special characters that are allowed.
func TestIDsArriveUnchanged(t *testing.T) {
	const id = "aZ9_.~:@=+-"
	if !validID.MatchString(id) {
		t.Fatal(id)
	}
	form := []string{"Content-Type: application/x-www-form-urlencoded; charset=utf-8"}
	for _, spec := range []Spec{
		{Path: "/o/{order_uuid}"},
		{Path: "/o/{order_uuid}?driver={driver}&a=?"},
		{Path: "/grab?driver={driver}&order={order_uuid}&a=b"},
		{Path: "/grab", Body: new("driver={driver}&order={order_uuid}"), Headers: form},
		{Path: "/grab?order={order_uuid}", Body: new("order={order_uuid}"), Headers: form},
		{Path: "/grab", Body: new(`{"a":"?","order":"{order_uuid}"}`)},
		{Path: "/grab", Headers: []string{"X-Order: {order_uuid}"}},
		{Path: "/grab?order={order_uuid}", Grabbed: "200", Later: "202 -> /o/{order_uuid}"},
		{Path: "/grab?order={order_uuid}", Grabbed: "200", Later: "202 -> /grab?id={.id}&order={order_uuid}"},
	} {
		s, _, err := spec.Compile()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.IDs.Add([]string{id}); err != nil {
			t.Fatal(err)
		}
		read := func(url, body string, header http.Header) string {
			r := httptest.NewRequest(http.MethodPost, url, strings.NewReader(body))
			r.Header = header.Clone()
			var got []string
			if rest, ok := strings.CutPrefix(r.URL.Path, "/o/"); ok {
				got = append(got, rest)
			}
			if r.ParseForm() != nil {
				return "an unreadable form"
			}
			got = append(got, r.Form["order"]...)
			var doc struct{ Order string }
			if json.NewDecoder(r.Body).Decode(&doc) == nil && doc.Order != "" {
				got = append(got, doc.Order)
			}
			got = append(got, r.Header["X-Order"]...)
			return strings.Join(slices.Compact(got), " ")
		}
		path, body, header := s.Request(1, 42)
		if got := read(string(path), string(body), header); got != id {
			t.Errorf("%s %s %v: the server reads %q, want %q", path, body, header, got, id)
		}
		if url, later, err := s.ResultURL("", 1, 42, http.StatusAccepted, nil, []byte(`{"id":7}`)); later && (err != nil || read(url, "", nil) != id) {
			t.Errorf("%s, %v: the server reads %q, want %q", url, err, read(url, "", nil), id)
		}
	}
}

func TestSources(t *testing.T) {
	const body, xml = `{"id":7,"name":"a","orders":[{"id":"x"},{"id":"y"}],"ids":["p","q"],"odd":[{}],"mixed":["x",{}]}`, `<o id="5"><n>order 6</n></o>`
	for _, tc := range []struct{ text, body, want, wrong string }{
		{text: ".id", body: body, want: "7"},
		{text: "json:.name", body: body, want: "a"},
		{text: ".orders[*].id", body: body, want: "x y"},
		{text: ".orders[1].id", body: body, want: "y"},
		{text: ".ids", body: body, want: "p q"},
		{text: ".", body: `["m","n"]`, want: "m n"},
		{text: "header:Location", body: body, want: "/o/9"},
		{text: "header:location ~ `/o/(\\d+)`", body: body, want: "9"},
		{text: "text:~`\"id\":\"(.)\"`", body: body, want: "x y"},
		{text: "xml:/o/@id", body: xml, want: "5"},
		{text: "xml:/o/n~`order (.)`", body: xml, want: "6"},
		{text: ".nosuch", body: body}, {text: ".odd[*].id", body: body}, {text: ".mixed", body: body}, {text: ".orders[*].nosuch", body: body}, {text: "header:X-Id", body: body}, {text: ".id", body: "no JSON"},
		{text: "id", wrong: "must say where the id is"},
		{text: ".id==7", wrong: "must say where the id is"},
		{text: ".id !~ `(.)`", wrong: "must say where the id is"},
		{text: ".id~`.`", wrong: "the regular expression must have one group"},
		{text: ".id~`(.)(.)`", wrong: "the regular expression must have one group"},
		{text: ".id~`(`", wrong: "a regular expression in quotes or backquotes after"},
		{text: ".id .name", wrong: "must say where the id is"},
	} {
		s, err := ParseSource(tc.text)
		if tc.wrong != "" || err != nil {
			if err == nil || tc.wrong == "" || !strings.Contains(err.Error(), tc.wrong) {
				t.Errorf("ParseSource(%s): error %v; want …%s…", tc.text, err, tc.wrong)
			}
			continue
		}
		if got := strings.Join(s.In(http.Header{"Location": {"/o/9"}}, []byte(tc.body)), " "); got != tc.want {
			t.Errorf("IDs from %s: %q, want %q", tc.text, got, tc.want)
		}
	}
	if _, err := ParseRule("json:.orders[*].id==7"); err == nil || !strings.Contains(err.Error(), "a rule reads one field") {
		t.Error(err)
	}
}
