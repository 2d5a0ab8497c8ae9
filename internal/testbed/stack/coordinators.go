package stack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/testbed/proc"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// zooKeeperProgram contains the paths of Java and ZooKeeper. The stack starts Java itself, because
// the start scripts differ between distributions.
type zooKeeperProgram struct {
	java      string
	classPath string
}

var zooKeeperPaths = []struct{ jar, classPath string }{
	{"/usr/share/java/zookeeper.jar", "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar"},
	{"/opt/homebrew/opt/zookeeper/libexec/lib", "/opt/homebrew/opt/zookeeper/libexec/lib/*"},
	{"/usr/local/opt/zookeeper/libexec/lib", "/usr/local/opt/zookeeper/libexec/lib/*"},
	{"/opt/zookeeper/lib", "/opt/zookeeper/lib/*"},
}

func findZooKeeper() zooKeeperProgram {
	prog := zooKeeperProgram{java: find("java")}
	for _, p := range zooKeeperPaths {
		if _, err := os.Stat(p.jar); err == nil {
			prog.classPath = p.classPath
			break
		}
	}
	return prog
}

// zooCfg is the server config. It allows sessions shorter than the default minimum of 4 s. A
// session ends at most one tickTime late.
const zooCfg = `tickTime=100
minSessionTimeout=200
maxSessionTimeout=600000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
`

// zooKeeperServer describes how to start a ZooKeeper server whose files are in dir.
func zooKeeperServer(prog zooKeeperProgram, dir string) server {
	return server{
		name: "zookeeper",
		exe:  prog.java,
		args: func(addr string) ([]string, error) {
			cfg := filepath.Join(dir, "zookeeper.cfg")
			text := fmt.Sprintf("%sdataDir=%s\nclientPort=%s\nclientPortAddress=127.0.0.1\n", zooCfg, filepath.Join(dir, "zookeeper"), portOf(addr))
			return []string{
				"-Xmx256m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Djava.io.tmpdir=" + dir,
				"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
				"-Dzookeeper.preAllocSize=4096",          // in KiB
				"-Dznode.container.checkIntervalMs=5000", // how often empty lock nodes are removed
				"-cp", prog.classPath, "org.apache.zookeeper.server.ZooKeeperServerMain", cfg,
			}, os.WriteFile(cfg, []byte(text), 0o600)
		},
		ask: askZooKeeper,
	}
}

// zooKeeperAnswer is a response timeout. It is necessary because a server that is still starting
// may never respond.
const zooKeeperAnswer = 500 * time.Millisecond

// askZooKeeper returns a server's version, or an error if the server is not ready yet.
func askZooKeeper(ctx context.Context, addr string) (serverInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, zooKeeperAnswer)
	defer cancel()
	status, err := lock.ZooKeeperStatus(ctx, addr)
	if err != nil {
		return serverInfo{}, err
	}
	number, _, _ := strings.Cut(strings.TrimPrefix(status, "Zookeeper version: "), "-")
	return serverInfo{version: "ZooKeeper " + number}, nil
}

// etcdServer describes how to start an etcd server with a single member. Its election timeout is
// short enough for leases of 1 s.
func etcdServer(exe, dir string) server {
	name := filepath.Base(dir)
	return server{
		name: "etcd",
		exe:  exe,
		args: func(addr string) ([]string, error) {
			peer, err := proc.FreeAddr()
			return []string{
				"--name", name, "--data-dir", filepath.Join(dir, "etcd"),
				"--listen-client-urls", "http://" + addr, "--advertise-client-urls", "http://" + addr,
				"--listen-peer-urls", "http://" + peer, "--initial-advertise-peer-urls", "http://" + peer,
				"--initial-cluster", name + "=http://" + peer,
				"--heartbeat-interval", "100", "--election-timeout", "500",
				"--logger", "zap", "--log-level", "warn",
			}, err
		},
		ask: askEtcd,
	}
}

const etcdAnswer = time.Second

// askEtcd returns an etcd server's version. It also reads a key, because that succeeds only if the
// server has a leader.
func askEtcd(ctx context.Context, addr string) (info serverInfo, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("etcd at %s: %w", addr, err)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, etcdAnswer)
	defer cancel()
	if err := Accepts(ctx, strings.TrimPrefix(addr, "http://")); err != nil {
		return info, err
	}

	client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	if err != nil {
		return info, err
	}
	defer client.Close()
	status, err := client.Status(ctx, addr)
	if err != nil {
		return info, err
	}
	if _, err := client.Get(ctx, "grablab"); err != nil {
		return info, err
	}
	info.version = "etcd " + status.Version
	return info, nil
}
