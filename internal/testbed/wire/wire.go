// Package wire is proxies that know what passes through them: Redis' protocol, RESP,
// and that of MySQL and MariaDB.
//
// A Proxy stands between a program, in whatever language it is written, and one
// server. Each request with its reply is an Event, and a Tap may hold it before it
// is sent or after its reply has come, never send it, or lose its reply. The bytes
// themselves pass unchanged, but for what a MySQL server offers in its greeting that
// would hide statements: TLS, compression and the like are taken out. What is not
// understood passes as bytes, and is said.
//
// Begin at Listen. proxy.go and link.go carry bytes; resp.go and mysql.go find out
// where a request and a reply begin and end; text.go gives requests their names.
// sentinel.go has clients that ask a Sentinel for their Redis find a proxy.
package wire

import (
	"context"
	"errors"
	"time"
)

// Event is one request of a client.
type Event struct {
	Server string    // as the proxy calls it
	Conn   uint64    // connection of the client, from 1 in each proxy
	N      uint64    // of the request on its connection, from 1, counted while there is a tap
	Text   string    // "SET grab:7 NX PX", "UPDATE orders"
	At     time.Time // when it had come from the client, or as much of it as is looked at
}

// Tap stands in the place of a request, which it makes by send. It may wait before
// and after that, or not send at all. send returns once the reply begins to come from
// the server: nil, a *ReplyError, or another error where there will be none. If a tap
// does not send, or returns another error than send has, the connection of the client
// is reset, but under ErrDropped. ctx ends with the connection.
//
// Each request has its tap called in a goroutine of its own, and what comes later in
// the same direction of its connection waits for it.
type Tap func(ctx context.Context, e Event, send func(context.Context) error) error

// ErrDropped is what a tap returns to have a client wait in vain: its request, if it
// was not sent, or else the reply is lost, and what comes later in that direction too.
var ErrDropped = errors.New("wire: dropped")

// ErrGone is what send returns where there will be no reply: the connection has ended.
var ErrGone = errors.New("wire: the connection has ended")

// ReplyError is an error that a server has replied with.
type ReplyError struct{ Text string }

// Error is the server's own words.
func (e *ReplyError) Error() string { return e.Text }

// Protocol is what the clients and the server of a proxy speak.
type Protocol func(*session) (requests, replies scanner)

// The protocols.
var (
	RESP  Protocol = scanRESP
	MySQL Protocol = scanMySQL
)

// scanner finds the messages in one direction of a connection.
type scanner interface {
	// scan looks at bytes that follow those it has taken before, and takes n of them,
	// to the end of a message at the most. 0: it must see more, which full says there
	// cannot be. m says what begins with them. A *refusal says that the client cannot be
	// served, any other error that the protocol is not understood.
	scan(data []byte, full bool) (n int, m message, err error)
}

// message is a request, or a reply to one.
type message struct {
	kind    messageKind
	request request             // that it is, or answers
	failed  error               // of a reply: the server's error
	raw     []byte              // of a request, as far as it has come
	text    func([]byte) string // names the request by that
}

type messageKind byte

const (
	none  messageKind = iota // nothing begins, or nothing that matters
	asks                     // a request
	tells                    // a request that has no reply
	replies
)

// request is one that waits for its reply.
type request struct {
	kind byte // which the scanners of a protocol agree upon
	left int  // likewise
	text string
	tap  *tapped // nil: there was no tap when it was sent
}

// refusal is why a client cannot be served, and what tells it so.
type refusal struct {
	why    string
	answer []byte
}

func (r *refusal) Error() string { return r.why }
