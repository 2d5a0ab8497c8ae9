// Package wire provides proxies that can pause, refuse or lose messages between a client and a
// server. They understand Redis (RESP), MySQL, MariaDB and PostgreSQL.
//
// A Proxy forwards a program's connections to one server. The program may use any language. Each
// request is an Event. A Tap can hold a request before the proxy sends it or after its reply has
// arrived, refuse to send it, or lose its reply. The bytes pass unchanged, with one exception: from
// a MySQL handshake, the proxy removes capabilities that would hide statements, such as TLS and
// compression. Even if the proxy cannot read a connection, the bytes still pass, and
// Proxy.Unreadable explains why.
//
// Start reading at Listen. proxy.go and link.go copy bytes. resp.go, mysql.go and postgres.go find
// the beginnings and ends of requests and replies. text.go names requests.
package wire

import (
	"context"
	"errors"
)

// Event is one client request.
type Event struct {
	Server string // the name of the server, as in Config.Server
	Conn   uint64 // number of the client's connection to the proxy, from 1
	N      uint64 // number of the request on its connection, from 1; only requests with a tap count
	Text   string // for example "SET grab:7 NX PX" or "UPDATE orders"
}

// Tap decides what happens to a request. To forward the request to the server, it calls send. It
// may wait before and after that, or not call send at all.
//
// send returns nil when the server's reply begins to arrive, or a *ReplyError if the reply is an
// error. Any other error means that there will be no reply.
//
// If the tap does not send the request, or returns an error that did not come from send, the proxy
// resets the client's connection. ctx ends with the connection.
//
// The proxy calls the tap in a new goroutine for each request. Later data in the same direction
// waits until the tap lets the request pass.
type Tap func(ctx context.Context, e Event, send func(context.Context) error) error

// ErrGone means that no reply will come, because the connection has ended.
var ErrGone = errors.New("wire: the connection has ended")

// ReplyError is an error that the server sent as its reply.
type ReplyError struct{ Text string }

// Error returns the text of the server's error.
func (e *ReplyError) Error() string { return e.Text }

// Protocol returns the scanners for both directions of a new connection.
type Protocol func(*session) (requests, replies scanner)

// These are the protocols that a proxy can read.
var (
	RESP     Protocol = scanRESP
	MySQL    Protocol = scanMySQL
	Postgres Protocol = scanPostgres
)

// scanner finds the messages in the data of one direction of a connection.
type scanner interface {
	// scan consumes n bytes of data, at most to the end of a message, and returns the message that
	// begins there. If n exceeds the data, the next bytes are the rest of the message, and pass without
	// a scan. If n is 0, it needs more data. full means that the buffer has no room for more. An error
	// means that the proxy cannot read the connection.
	scan(data []byte, full bool) (n int, m message, err error)
}

type message struct {
	kind    messageKind
	request request // the request, or the request that this reply answers
	failed  error   // the server's error, if the message is an error reply
	text    string  // Event.Text of a request
}

type messageKind byte

const (
	noMessage messageKind = iota // there is no message, or it needs no decision
	asks                         // the message is a request
	tells                        // the message is a request that gets no reply
	replies
)

// request holds what the proxy needs to know about a request when its reply arrives.
type request struct {
	kind  byte // kind of the command, which each protocol defines
	left  int  // number of confirmations that have not arrived yet
	alone bool // whether all earlier requests had replies when the client sent this one
	text  string
	tap   *tapped // nil if there was no tap when the request was sent
}
