package target

import (
	"bytes"
	"encoding/xml"
	"io"
	"net/http"
	"strings"

	"golang.org/x/net/html/charset"
)

// reply is the response to a request. Its JSON body is decoded only if a rule needs it.
type reply struct {
	status int
	header http.Header
	body   []byte

	cut     bool // whether the body is incomplete; no rule about the body matches then
	decoded bool // whether doc and isJSON are set
	doc     any
	isJSON  bool
}

// part returns the part of the response that a test examines, or false if the response lacks that
// part.
func (a *reply) part(t test) (got any, ok bool) {
	switch {
	case t.source == fromHeader:
		values := a.header.Values(t.name)
		return strings.Join(values, ", "), len(values) > 0
	case a.cut:
		return nil, false
	case t.source == fromText:
		return string(bytes.TrimSpace(a.body)), true
	case t.source == fromXML:
		return inXML(a.body, t.name)
	}
	if !a.decoded {
		a.doc, a.isJSON = decode(a.body)
		a.decoded = true
	}
	if !a.isJSON {
		return nil, false
	}
	return follow(a.doc, t.path)
}

// inXML returns the text of the first element or attribute at a path, or false if there is none.
func inXML(body []byte, path string) (any, bool) {
	d := xml.NewDecoder(bytes.NewReader(body))
	d.CharsetReader = charset.NewReaderLabel
	path, attribute, wantsAttribute := strings.Cut(path, "/@")
	var (
		at    []string         // names of the open elements
		text  *strings.Builder // text of the element that was found
		depth int              // depth of the element that was found
		found any
		ok    bool
	)
	for {
		token, err := d.Token()
		if token == nil {
			return found, ok && err == io.EOF
		}
		switch token := token.(type) {
		case xml.StartElement:
			at = append(at, token.Name.Local)
			if ok || text != nil || !isAt(at, path) {
				continue
			}
			if !wantsAttribute {
				text, depth = &strings.Builder{}, len(at)
			}
			for _, a := range token.Attr {
				if wantsAttribute && a.Name.Local == attribute {
					found, ok = a.Value, true
				}
			}
		case xml.CharData:
			if text != nil {
				text.Write(token)
			}
		case xml.EndElement:
			if text != nil && len(at) == depth {
				found, ok, text = strings.TrimSpace(text.String()), true, nil
			}
			at = at[:len(at)-1]
		}
	}
}

// isAt reports whether an element is at a path. names lists the elements from the root to this one.
func isAt(names []string, path string) bool {
	whole := "/" + strings.Join(names, "/")
	if anywhere, ok := strings.CutPrefix(path, "//"); ok {
		return strings.HasSuffix(whole, "/"+anywhere)
	}
	return whole == path
}
