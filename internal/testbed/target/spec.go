package target

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Spec describes a service's HTTP calls as text from flags or a target file. An empty field means
// that the service uses the same call as grabsvc.
type Spec struct {
	Method               string
	Path                 string
	Body                 *string // nil if the flag is not given
	Headers              []string
	Grabbed, Taken, Busy string   // rules that classify a response
	Later                string   // "RULE -> PLACE": which responses come before the result, and where to get the result
	OpenOrders           []string // one HTTP call, or SQL statements
}

// Compile converts the Spec into a Shape for grabs and an Opening for orders. If the Spec does not
// say how to open orders, the Opening is nil. Errors are of type *FieldError.
func (spec Spec) Compile() (*Shape, *Opening, error) {
	s, err := spec.shape()
	if err != nil || len(spec.OpenOrders) == 0 {
		return s, nil, err
	}
	var open *Opening
	if err := field("open-orders", &open)(parseOpening(spec.OpenOrders)); err != nil {
		return nil, nil, err
	}
	return s, open, nil
}

// IsOwn reports whether the service uses exactly the same calls as grabsvc for a grab. It ignores how
// orders are opened.
func (spec Spec) IsOwn() bool {
	return spec.Method == "" && spec.Path == "" && spec.Body == nil && spec.Headers == nil &&
		spec.Grabbed == "" && spec.Taken == "" && spec.Busy == "" && spec.Later == ""
}

// ParseMethod returns text as an HTTP method in upper case, or an error if it is not a method.
func ParseMethod(text string) (string, error) {
	text = strings.ToUpper(text)
	if !httpguts.ValidHeaderFieldName(text) {
		return "", fmt.Errorf("must be a method such as %s or %s", http.MethodPost, http.MethodPut)
	}
	return text, nil
}

// ParsePath parses the path of a grab request.
func ParsePath(text string) (Template, error) { return parsePathTemplate(text, grabSlots...) }

// ParseBody parses the body of a grab request.
func ParseBody(text string) (Template, error) { return ParseTemplate(text, grabSlots...) }

// ParseHeader parses a single header of a grab request.
func ParseHeader(text string) ([]Header, error) { return parseHeaders([]string{text}) }

// ParseOpening parses a call or a single SQL statement that opens orders.
func ParseOpening(text string) (*Opening, error) { return parseOpening([]string{text}) }

var methodAndPath = regexp.MustCompile(`^[A-Z]+ /`)

func parsePathTemplate(text string, names ...string) (Template, error) {
	if !strings.HasPrefix(text, "/") || strings.ContainsAny(text, "# \t\r\n") {
		hint := ""
		if methodAndPath.MatchString(text) {
			hint = ", and the method must be in method"
		}
		return Template{}, fmt.Errorf("%q: must be a path after the base URL, such as %s%s", text, ownPath, hint)
	}
	t, err := ParseTemplate(text, names...)
	t.isURL = true
	return t, err
}

func parseHeaders(texts []string) ([]Header, error) {
	headers := make([]Header, len(texts))
	for i, text := range texts {
		name, value, ok := strings.Cut(text, ":")
		value = strings.TrimSpace(value)
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, errors.New("must be NAME: VALUE, such as 'X-User: {driver}'") // do not show the value, because it may be a secret
		}
		t, err := ParseTemplate(value, grabSlots...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		headers[i] = Header{http.CanonicalHeaderKey(name), t}
	}
	return headers, nil
}

const (
	// SQLPrefix begins a text that is an SQL statement.
	SQLPrefix    = "sql:"
	ownOpenBody  = `{"count":{count}}`
	ownFirstID   = ".first_id"
	openingArrow = "->"
)

var errOpening = errors.New(`must be a call, as in '/orders' or 'POST /api/orders {"n":{count}} -> .data.firstId', ` +
	`or a statement, as in 'sql: UPDATE orders SET status = 0 WHERE id BETWEEN {first} AND {last}'`)

// parseOpening parses an HTTP call or SQL statements that open orders. A call has the form METHOD
// PATH BODY -> FIELD. Only the path is required. A statement begins with sql:.
func parseOpening(texts []string) (*Opening, error) {
	open := &Opening{}
	for _, text := range texts {
		text = strings.TrimSpace(text)
		if statement, ok := strings.CutPrefix(text, SQLPrefix); ok {
			t, err := ParseTemplate(strings.TrimSpace(statement), orderID, orderUUID, firstID, lastID, count)
			if err != nil {
				return nil, err
			}
			if len(t.parts) == 0 || t.Has(orderID, orderUUID) && t.Has(firstID, lastID, count) {
				return nil, errors.New("the statement must contain {order} or {order_uuid}, to run once for each order, or {first} and {last}, to run once for all")
			}
			open.SQL = append(open.SQL, t)
			continue
		}
		if err := open.call(text); err != nil {
			return nil, err
		}
	}
	if len(texts) > 1 && len(open.SQL) < len(texts) {
		return nil, errors.New("the value must be either one HTTP call or a list of SQL statements")
	}
	return open, nil
}

// openingPattern matches METHOD PATH BODY. Only the path is required.
var openingPattern = regexp.MustCompile(`(?s)^(?:([^ /][^ ]*) +)?(/[^ ]*)(.*)$`)

// call parses an HTTP call of the form METHOD PATH BODY -> ID into o. Only the path is required.
func (o *Opening) call(text string) (err error) {
	id := ownFirstID
	if i := strings.LastIndex(text, openingArrow); i >= 0 {
		text, id = strings.TrimSpace(text[:i]), strings.TrimSpace(text[i+len(openingArrow):])
	}
	m := openingPattern.FindStringSubmatch(text)
	if m == nil {
		return errOpening
	}
	if o.Method, err = ParseMethod(cmp.Or(m[1], http.MethodPost)); err != nil {
		return errOpening
	}
	if o.Path, err = parsePathTemplate(m[2], count); err != nil {
		return err
	}
	body := strings.TrimSpace(m[3])
	o.DefaultBody = body == ""
	if o.Body, err = ParseTemplate(cmp.Or(body, ownOpenBody), count); err != nil {
		return err
	}
	o.ID, err = ParseSource(id)
	return err
}

// OpensMany reports whether one call can open several orders.
func (o *Opening) OpensMany() bool { return o.Path.Has(count) || o.Body.Has(count) }

// ByCall reports whether orders are opened with an HTTP call, as opposed to SQL.
func (o *Opening) ByCall() bool { return len(o.SQL) == 0 }

// Call returns the path and body for the HTTP call that opens n orders.
func (o *Opening) Call(n int) (path string, body []byte) {
	r := strings.NewReplacer("{count}", strconv.Itoa(n))
	return r.Replace(o.Path.text), []byte(r.Replace(o.Body.text))
}

// Statements returns the SQL statements that open n orders, beginning with order ID first.
func (o *Opening) Statements(first int64, n int) []string {
	var all []string
	for _, t := range o.SQL {
		if !t.Has(orderID, orderUUID) {
			r := strings.NewReplacer("{first}", strconv.FormatInt(first, 10), "{last}", strconv.FormatInt(first+int64(n)-1, 10), "{count}", strconv.Itoa(n))
			all = append(all, r.Replace(t.text))
			continue
		}
		for id := first; id < first+int64(n); id++ {
			r := strings.NewReplacer("{order}", strconv.FormatInt(id, 10), "{order_uuid}", uuidOf(orderUUIDs, id))
			all = append(all, r.Replace(t.text))
		}
	}
	return all
}
