package fleet

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A target that claims to have opened other orders than it was asked for is not believed.
func TestCreateBelievesNoAbsurdAnswer(t *testing.T) {
	for answer, ok := range map[string]bool{
		`{"first_id":1,"count":3}`:                   true,
		`{"first_id":9223372036854775804,"count":3}`: true,
		`{"first_id":-1,"count":3}`:                  false,
		`{"first_id":0,"count":3}`:                   false,
		`{"first_id":1,"count":300}`:                 false,
		`{"first_id":1,"count":2}`:                   false,
		`{"first_id":1,"count":-3}`:                  false,
		`{"first_id":9223372036854775807,"count":3}`: false,
		`{}`: false,
	} {
		target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, answer)
		}))
		f := &Fleet{client: target.Client(), Instances: []*Instance{{ID: "target", URL: target.URL}}}
		if first, err := f.Create(t.Context(), 3); (err == nil) != ok {
			t.Errorf("%s: %d, %v", answer, first, err)
		}
		target.Close()
	}
}
