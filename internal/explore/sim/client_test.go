package sim

import (
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// token is sent as text by its MarshalBinary, without a String.
type token struct{ text string }

func (t token) MarshalBinary() ([]byte, error) { return []byte(t.text), nil }

// What a lock sends is seen as the server gets it, whatever type it has in the program.
func TestSentBy(t *testing.T) {
	cmd := redis.NewCmd(t.Context(), "set", "key", []byte("token-1-1"), token{"token-1-2"}, "px", 3000, 3*time.Second)
	want := []any{"set", "key", "token-1-1", "token-1-2", "px", 3000, 3 * time.Second}
	if got := sentBy(cmd); !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
