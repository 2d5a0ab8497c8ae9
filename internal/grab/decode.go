package grab

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// decode reads one JSON object and refuses every field that v does not have.
// Its errors are for the client.
func decode(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return badRequest("bad_body", "%s", whatIsWrong(err))
	}
	if _, err := d.Token(); err != io.EOF {
		return badRequest("bad_body", "the body goes on after its JSON object")
	}
	return nil
}

func whatIsWrong(err error) string {
	var typed *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF):
		return "the body is empty; it must be a JSON object"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the body is no JSON: it ends too early"
	case errors.As(err, &typed) && typed.Field == "":
		return "the body must be a JSON object, not " + typed.Value
	case errors.As(err, &typed):
		return typed.Field + " cannot be " + typed.Value
	default: // bad syntax, or an unknown field
		return "the body cannot be read: " + strings.TrimPrefix(err.Error(), "json: ")
	}
}
