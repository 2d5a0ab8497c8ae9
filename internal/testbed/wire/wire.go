// Package wire has proxies that read what passes through them: the Redis protocol (RESP)
// and the protocol of MySQL and MariaDB.
//
// A Proxy stands between a program, in any language, and one server. Each request is an
// Event. A Tap can hold a request before the proxy sends it or after its reply has come,
// can discard it, or can lose its reply. The bytes pass unchanged, with one exception: the
// proxy removes offers from a MySQL server's greeting that would hide statements, such as
// TLS and compression. If the proxy cannot read a connection, its bytes still pass, and
// Proxy.Unreadable says why.
//
// Begin at Listen. proxy.go and link.go copy bytes. resp.go and mysql.go find the
// beginnings and ends of requests and replies. text.go names requests. sentinel.go has
// Sentinels that lead clients to a proxy.
package wire

import (
	"context"
	"errors"
	"time"
)

// Event is one request of a client.
type Event struct {
	Server string    // Config.Server
	Conn   uint64    // number of the client's connection, from 1 in each proxy
	N      uint64    // number of the request on its connection, from 1; only tapped ones count
	Text   string    // for example "SET grab:7 NX PX" or "UPDATE orders"
	At     time.Time // when the proxy had received the request, or the part that it reads
}

// Tap decides about a request. It calls send to send the request. It may wait before and
// after that, or not call send at all. send returns when the server's reply begins to come:
// nil, a *ReplyError, or another error if there will be no reply. The proxy resets the
// client's connection if the tap does not send, or returns another error than send has
// returned. ErrDropped is the exception. ctx ends with the connection.
//
// The proxy calls the tap of each request in a new goroutine. Later data in the same
// direction of the connection waits for the tap.
type Tap func(ctx context.Context, e Event, send func(context.Context) error) error

// ErrDropped is the error with which a tap lets a client wait in vain. The proxy discards the
// request, or the reply if the request was sent, and later data in that direction too.
var ErrDropped = errors.New("wire: dropped")

// ErrGone is the error of send if the connection has ended without a reply.
var ErrGone = errors.New("wire: the connection has ended")

// ReplyError is an error in the reply of a server.
type ReplyError struct{ Text string }

// Error returns the text of the server.
func (e *ReplyError) Error() string { return e.Text }

// Protocol makes the scanners for a new connection.
type Protocol func(*session) (requests, replies scanner)

// The protocols.
var (
	RESP  Protocol = scanRESP
	MySQL Protocol = scanMySQL
)

// scanner finds the messages in one direction of a connection.
type scanner interface {
	// scan reads data, which follows the bytes that it has consumed before. It consumes n
	// bytes, at most to the end of a message, and returns the message that begins with them.
	// If n is 0, scan needs more data; full means that no more fits into the buffer. The
	// error is a *refusal if the proxy cannot serve the client, and any other error if scan
	// cannot read the data.
	scan(data []byte, full bool) (n int, m message, err error)
}

// message is a request or a reply.
type message struct {
	kind    messageKind
	request request             // the request, or the request that the reply answers
	failed  error               // the server's error in a reply
	raw     []byte              // the part of a request that has come
	text    func([]byte) string // returns Event.Text for raw
}

type messageKind byte

const (
	noMessage messageKind = iota // no message begins, or none that matters
	asks                         // a request
	tells                        // a request without a reply
	replies
)

// request is a request that waits for its reply.
type request struct {
	kind byte // kind of the command, which each protocol defines
	left int  // confirmations that have not come yet
	text string
	tap  *tapped // nil if there was no tap when it was sent
}

// refusal is the error for a client that the proxy cannot serve.
type refusal struct {
	why    string
	answer []byte // tells the client
}

func (r *refusal) Error() string { return r.why }
