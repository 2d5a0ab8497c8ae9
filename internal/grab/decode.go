package grab

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// decode decodes a JSON object into v and rejects unknown fields. Its errors are sent to the
// client.
func decode(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return badRequest("bad_body", "%s", whatIsWrong(err))
	}
	if _, err := d.Token(); err != io.EOF {
		return badRequest("bad_body", "extra data after the JSON object: send only one object")
	}
	return nil
}

func whatIsWrong(err error) string {
	var typed *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF):
		return "the body is empty: send a JSON object"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the JSON ends too early: send a complete object"
	case errors.As(err, &typed) && typed.Field == "":
		return "the body must be a JSON object, not " + typed.Value
	case errors.As(err, &typed):
		return typed.Field + " has the wrong type: " + typed.Value + " is not allowed"
	default: // the body has a syntax error or an unknown field
		return "the body cannot be read: " + strings.TrimPrefix(err.Error(), "json: ")
	}
}
