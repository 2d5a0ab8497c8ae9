package stack

import (
	"bytes"
	"encoding/json"
	"sync"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// The toxics that toxiproxy does not have. Its own "timeout" drops bytes too,
// but leaves a goroutine behind when it is taken away.
const (
	dropToxic  = "grablab-drop"
	stillToxic = "grablab-still"
)

// register makes them known to toxiproxy, which looks them up by name.
var register = sync.OnceFunc(func() {
	toxics.Register(dropToxic, new(drop))
	toxics.Register(stillToxic, new(still))
})

// addToxic adds one to the links of a stream, the only way that toxiproxy offers.
func addToxic(to *toxiproxy.ToxicCollection, kind, stream string, attributes map[string]any) error {
	register()
	text, err := json.Marshal(map[string]any{"type": kind, "stream": stream, "attributes": attributes})
	if err != nil {
		return err
	}
	_, err = to.AddToxicJson(bytes.NewReader(text))
	return err
}

// drop lets nothing through but the end of a connection.
type drop struct{}

// Pipe returns when the toxic is taken away, or the connection has ended.
func (*drop) Pipe(stub *toxics.ToxicStub) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				stub.Close()
				return
			}
		}
	}
}

// still holds everything until it is taken away.
type still struct{}

// held is what one connection has sent meanwhile.
type held struct {
	chunks []*stream.StreamChunk
	ended  bool
}

// NewState is that of one connection.
func (*still) NewState() any { return new(held) }

// Pipe returns when the toxic is taken away.
func (*still) Pipe(stub *toxics.ToxicStub) {
	held := stub.State.(*held)
	input := stub.Input
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-input:
			if chunk == nil {
				held.ended, input = true, nil
				continue
			}
			held.chunks = append(held.chunks, chunk)
		}
	}
}

// Cleanup lets go what was held.
func (*still) Cleanup(stub *toxics.ToxicStub) {
	held := stub.State.(*held)
	for _, chunk := range held.chunks {
		stub.Output <- chunk
	}
	if held.ended {
		stub.Close()
	}
}
