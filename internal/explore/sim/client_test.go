package sim

import (
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// token has a MarshalBinary method and no String method.
type token struct{ text string }

func (t token) MarshalBinary() ([]byte, error) { return []byte(t.text), nil }

// TestSentBy checks that sentBy returns the arguments as the server receives them, whatever
// their types.
func TestSentBy(t *testing.T) {
	cmd := redis.NewCmd(t.Context(), "set", "key", []byte("token-1-1"), token{"token-1-2"}, "px", 3000, 3*time.Second)
	want := []any{"set", "key", "token-1-1", "token-1-2", "px", 3000, 3 * time.Second}
	if got := sentBy(cmd); !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
