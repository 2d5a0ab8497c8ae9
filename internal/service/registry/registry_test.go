package registry

import (
	"context"
	"net"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// serveDNS makes this process use a DNS server with these records.
func serveDNS(t *testing.T, records map[string][]dnsmessage.ResourceBody) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		conn.Close()
	})
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.Authoritative, m.Additionals = true, true, nil
			all, known := records[q.Name.String()]
			if !known {
				m.RCode = dnsmessage.RCodeNameError
			}
			for _, body := range all {
				header := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET}
				if r := (dnsmessage.Resource{Header: header, Body: body}); typeOf(body) == q.Type {
					m.Answers = append(m.Answers, r)
				}
			}
			if reply, err := m.Pack(); err == nil {
				conn.WriteTo(reply, from)
			}
		}
	}()
}

func typeOf(body dnsmessage.ResourceBody) dnsmessage.Type {
	if _, ok := body.(*dnsmessage.SRVResource); ok {
		return dnsmessage.TypeSRV
	}
	return dnsmessage.TypeA
}

func TestFind(t *testing.T) {
	srv := func(host string, port uint16) dnsmessage.ResourceBody {
		return &dnsmessage.SRVResource{Target: dnsmessage.MustNewName(host), Port: port}
	}
	a := func(last byte) dnsmessage.ResourceBody { return &dnsmessage.AResource{A: [4]byte{127, 0, 0, last}} }
	serveDNS(t, map[string][]dnsmessage.ResourceBody{
		"_grab._tcp.example.":                        {srv("b.example.", 8005), srv("a.example.", 8004)},
		"_http._tcp.grabsvc.shop.svc.cluster.local.": {srv("10-0-0-1.grabsvc.shop.svc.cluster.local.", 8004), srv("10-0-0-2.grabsvc.shop.svc.cluster.local.", 8004)},
		"grabsvc.example.":                           {a(2), a(1), a(2)},
		"idle.example.":                              {},
	})
	eureka := startServer(t)
	for _, tc := range []struct {
		source string
		want   []string
		says   string
	}{
		{"dns:_grab._tcp.example.", []string{"http://a.example:8004", "http://b.example:8005"}, ""},
		{"dns:grabsvc.example.:8004", []string{"http://127.0.0.1:8004", "http://127.0.0.2:8004"}, ""},
		{"k8s:grabsvc.shop.svc.cluster.local.", []string{"http://10-0-0-1.grabsvc.shop.svc.cluster.local:8004", "http://10-0-0-2.grabsvc.shop.svc.cluster.local:8004"}, ""},
		{"dns:none.example.", nil, "dns:none.example.: lookup none.example."},
		{"dns:idle.example.:8004", nil, "dns:idle.example.:8004: lookup idle.example."},
		{"eureka:GRABSVC@" + eureka, nil, "the registry lists no instance"},
		{"eureka:GRABSVC@http://127.0.0.1:1", nil, "eureka:GRABSVC@http://127.0.0.1:1: Get"},
	} {
		s, err := Parse(tc.source)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Find(t.Context())
		if says := errorText(err); !reflect.DeepEqual(got, tc.want) || (tc.says == "") != (err == nil) || !strings.Contains(says, tc.says) {
			t.Errorf("Find of %s: %q, %v, want %q, %s", tc.source, got, err, tc.want, tc.says)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestParseRefuses(t *testing.T) {
	for text, says := range map[string]string{
		"eureka:": "must be a source", "dns:": "must be a source", "k8s:a/b": "must be a source", "eureka:A B": "must be a source", "consul:a": "must be a source",
		"dns:a:b:c": "must be a source", "dns:a:b": "the port must be a number", "eureka:A@h:8761": "must be the URL of a Eureka server",
		"eureka:A@http://u:p@h:8761": "must be the URL of a Eureka server",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Parse(%s) = %v, want …%s…", text, err, says)
		}
	}
}

func TestIsSource(t *testing.T) {
	for text, want := range map[string]bool{"eureka:A": true, "dns:a": true, "k8s:a": true, "http://a": false, "dns": false, "": false} {
		if IsSource(text) != want {
			t.Errorf("IsSource(%q) = %v", text, !want)
		}
	}
}
