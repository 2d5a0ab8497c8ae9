package instance_test

import (
	"bytes"
	"database/sql"
	"errors"
	"flag"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"grablab/internal/grab"
	"grablab/internal/order"
	"grablab/internal/service/instance"
	"grablab/internal/service/version"
)

func TestParse(t *testing.T) {
	defaults := instance.Config{
		Addr: "127.0.0.1:8004", DB: instance.DefaultDB, MaxConns: 64, Strategy: "setnx",
		Work: time.Second, TTL: 30 * time.Second, Timeout: time.Minute, OnLost: grab.Abort, PerDriver: 1,
	}
	tests := []struct {
		name string
		args []string
		env  map[string]string
		want func(*instance.Config)
	}{
		{"defaults", nil, nil, func(*instance.Config) {}},
		{
			"flags", strings.Fields(`-addr :9000 -instance a -db sqlite:x -max-db-conns 8 -redis r:1 -redlock a:1,m@b:2 -zk z:1,y:2 -etcd e:1
				-strategy none -work 0 -ttl 1m30s -wait 2s -timeout 5s -guard guarded -on-lost ignore -per-driver 2 -clock-offset -3s -events e -admin-token t`),
			nil, func(c *instance.Config) {
				*c = instance.Config{
					Addr: ":9000", Instance: "a", DB: "sqlite:x", MaxConns: 8, Redis: []string{"r:1"}, Redlock: []string{"a:1", "m@b:2"},
					ZooKeeper: []string{"z:1", "y:2"}, Etcd: []string{"e:1"},
					Strategy: "none", TTL: 90 * time.Second, Wait: 2 * time.Second, Timeout: 5 * time.Second,
					Guard: order.Guarded, OnLost: grab.Ignore, PerDriver: 2, ClockOffset: -3 * time.Second, Events: "e", AdminToken: "t",
				}
			},
		},
		{
			"environment", nil,
			map[string]string{"GRABSVC_REDLOCK": "a:1,b:2", "GRABSVC_CLOCK_OFFSET": "1s", "GRABSVC_STRATEGY": "none"},
			func(c *instance.Config) {
				c.Redlock, c.ClockOffset, c.Strategy = []string{"a:1", "b:2"}, time.Second, "none"
			},
		},
		{
			"a flag beats the environment", []string{"-redis", "b:2"}, map[string]string{"GRABSVC_REDIS": "a:1"},
			func(c *instance.Config) { c.Redis = []string{"b:2"} },
		},
		{
			"no Redis after all", []string{"-redis", ""}, map[string]string{"GRABSVC_REDIS": "a:1"},
			func(c *instance.Config) {},
		},
		{
			"Sentinel", []string{"-sentinel", "a:1, b:2", "-sentinel-master", "m"}, nil,
			func(c *instance.Config) { c.Sentinel, c.SentinelMaster = []string{"a:1", "b:2"}, "m" },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			want := defaults
			tt.want(&want)
			got, err := instance.Parse(tt.args)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("Parse: %+v, %v\nwant %+v", got, err, want)
			}
		})
	}
}

// TestMainRefusesBadValues checks that each bad value leads to exit code 2, and to one line that says
// what is wrong and what to use instead.
func TestMainRefusesBadValues(t *testing.T) {
	dir := t.TempDir()
	sqlite := "sqlite:" + dir + "/t.db"
	tests := []struct {
		args string
		want []string
	}{
		{"-ttl abc", []string{"-ttl abc", "30s"}},
		{"-ttl 0", []string{"-ttl 0", "at least 1ms"}},
		{"-ttl 10", []string{"-ttl 10", "30s"}},
		{"-work -1s", []string{"-work -1s", "at least 0s"}},
		{"-wait -1s", []string{"-wait -1s", "at least 0s"}},
		{"-timeout 0", []string{"-timeout 0", "at least 1ms"}},
		{"-clock-offset x", []string{"-clock-offset x", "30s"}},
		{"-addr 8004", []string{"-addr", `"8004"`, "HOST:PORT"}},
		{"-addr 127.0.0.1:http", []string{"-addr", "HOST:PORT"}},
		{"-addr 127.0.0.1:65536", []string{"-addr", "HOST:PORT"}},
		{"-redis localhost", []string{"-redis", `"localhost"`, "HOST:PORT"}},
		{"-redlock a:1,,b:2", []string{"-redlock", "separated by commas"}},
		{"-redlock a:1,@b:2", []string{"-redlock", `"@b:2"`, "NAME@HOST:PORT"}},
		{"-redlock a:1,m@b", []string{"-redlock", `"m@b"`, "NAME@HOST:PORT"}},
		{"-redis m@b:1", []string{"-redis", "HOST:PORT"}},
		{"-zk localhost", []string{"-zk", `"localhost"`, "HOST:PORT"}},
		{"-etcd http://a:1", []string{"-etcd", "HOST:PORT"}},
		{"-addr 127.0.0.1:0 -strategy zookeeper -db " + sqlite, []string{"zookeeper needs ZooKeeper (-zk)"}},
		{"-addr 127.0.0.1:0 -strategy etcd -db " + sqlite, []string{"etcd needs etcd (-etcd)"}},
		{"-addr 127.0.0.1:0 -strategy mysql-getlock -db " + sqlite, []string{"mysql-getlock needs row locks and named locks", "-stack local"}},
		{"-redlock a:1,b:2,a:1", []string{"-redlock", "once"}},
		{"-sentinel a:1", []string{"-sentinel", "-sentinel-master"}},
		{"-sentinel-master m", []string{"-sentinel-master", "-sentinel ADDR"}},
		{"-redis a:1 -sentinel b:1 -sentinel-master m", []string{"-sentinel and -redis", "use only one of these flags"}},
		{"-strategy nope", []string{"-strategy", `"nope"`, "none, mutex, setnx"}},
		{"-guard nope", []string{"-guard", `"nope"`, "naive, guarded"}},
		{"-per-driver 0", []string{"-per-driver 0", "a whole number from 1"}},
		{"-on-lost nope", []string{"-on-lost nope", "abort, ignore"}},
		{"-instance " + strings.Repeat("a", 65), []string{"-instance aaa", "at most 64"}},
		{"-max-db-conns 1", []string{"-max-db-conns 1", "from 2"}},
		{"-max-db-conns x", []string{"-max-db-conns x", "a whole number"}},
		{"-admin-token a\x01b", []string{"-admin-token", "control characters"}},
		{"-registry http://a:1", []string{"-registry", "must be eureka=URL"}},
		{"-registry eureka=a:1", []string{"-registry", "must be the URL of a Eureka server"}},
		{"-otlp 127.0.0.1:4318", []string{"-otlp", "must be the URL of an OpenTelemetry collector"}},
		{"-nope", []string{"-nope"}},
		{"serve", []string{"serve: this is not a flag"}},
		{"-addr 127.0.0.1:0 -db nonsense", []string{"-db"}},
		{"-addr 127.0.0.1:0 -db sqlite:/no/such/folder/t.db", []string{"-db", "/no/such/folder"}},
		{"-addr 127.0.0.1:0 -events /no/such/folder/e -db " + sqlite, []string{"-events", "/no/such/folder"}},
		{"-addr 192.0.2.1:0", []string{"-addr", "192.0.2.1"}},
		{"-addr 127.0.0.1:0 -db " + sqlite, []string{"setnx needs Redis (-redis)"}},
		{"-addr 127.0.0.1:0 -strategy redlock -db " + sqlite, []string{"redlock needs Redlock nodes (-redlock)"}},
		{"-addr 127.0.0.1:0 -strategy mutex -guard fenced -db " + sqlite, []string{"fenced", "mutex"}},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := instance.Main(t.Context(), strings.Fields(tt.args), &stdout, &stderr)
			text := stderr.String()
			if code != 2 || strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "grabsvc: ") || stdout.Len() > 0 {
				t.Errorf("exit %d\n%s%s", code, &stdout, text)
			}
			for _, want := range tt.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q lacks %q", text, want)
				}
			}
		})
	}
}

func TestMainNamesTheVariable(t *testing.T) {
	t.Setenv("GRABSVC_TTL", "abc")
	var stderr bytes.Buffer
	if code := instance.Main(t.Context(), nil, nil, &stderr); code != 2 || !strings.Contains(stderr.String(), "GRABSVC_TTL") || !strings.Contains(stderr.String(), "30s") {
		t.Errorf("exit %d: %s", code, &stderr)
	}
}

// TestMainWithoutDatabase checks that a database that does not respond leads to exit code 1. Exit code 2
// would mean wrong flags.
func TestMainWithoutDatabase(t *testing.T) {
	var stderr bytes.Buffer
	code := instance.Main(t.Context(), []string{"-addr", "127.0.0.1:0", "-db", "u:p@tcp(127.0.0.1:1)/d"}, nil, &stderr)
	if code != 1 || !strings.Contains(stderr.String(), "refused") || strings.Count(stderr.String(), "\n") != 1 {
		t.Errorf("exit %d: %s", code, &stderr)
	}
}

// TestMainWithTakenAddress checks the exit code for an address that is already in use. It differs from
// the codes of other failures, so that the parent process can choose another address.
func TestMainWithTakenAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var stderr bytes.Buffer
	code := instance.Main(t.Context(), []string{"-addr", l.Addr().String()}, nil, &stderr)
	if code != instance.ExitAddrInUse || !strings.Contains(stderr.String(), l.Addr().String()) || strings.Count(stderr.String(), "\n") != 1 {
		t.Errorf("exit %d: %s", code, &stderr)
	}
}

func TestVersion(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := instance.Main(t.Context(), []string{"-version"}, &stdout, &stderr); code != 0 || !strings.HasPrefix(stdout.String(), "grabsvc "+version.Release+", module ") {
		t.Errorf("exit %d, %q, %q", code, stdout.String(), stderr.String())
	}
}

func TestHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := instance.Main(t.Context(), []string{"-help"}, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Errorf("exit %d: %s", code, &stderr)
	}
	for _, want := range []string{"-addr", "-instance", "-db", "-redis", "-redlock", "-zk", "-etcd", "-sentinel", "-strategy", "-work", "-ttl", "-wait",
		"-guard", "-on-lost", "-clock-offset", "-events", "-admin-token", "-timeout", "GRABSVC_CLOCK_OFFSET", "(default 30s)"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("help lacks %s", want)
		}
	}
	if _, err := instance.Parse([]string{"-h"}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("Parse: -h: %v", err)
	}
	if _, err := instance.Parse([]string{"-no-such-flag", "a:1"}); !errors.Is(err, instance.ErrUsage) {
		t.Errorf("-no-such-flag: %v, want bad usage", err)
	}
}

// TestMainWithForeignDatabase checks that an instance refuses the tables of another program as a
// wrong value of -db, and leaves them as they are.
func TestMainWithForeignDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE orders (id BIGINT PRIMARY KEY, customer TEXT)"); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	code := instance.Main(t.Context(), []string{"-addr", "127.0.0.1:0", "-db", "sqlite:" + path}, nil, &stderr)
	if code != 2 || !strings.Contains(stderr.String(), "use an empty database") {
		t.Errorf("exit %d: %s", code, &stderr)
	}
	var tables int
	if err := db.QueryRow("SELECT COUNT(*) FROM sqlite_master WHERE type = 'table'").Scan(&tables); err != nil || tables != 1 {
		t.Errorf("%d tables (%v), want 1", tables, err)
	}
}
