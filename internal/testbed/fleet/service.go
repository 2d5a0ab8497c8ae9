package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/testbed/ledger"
	"grablab/internal/testbed/proc"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/target"
	"grablab/internal/testbed/wait"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"
)

// Service is the command that starts one instance of the user's service.
type Service struct {
	env, words []string // environment variables and words of the command, with placeholders
	// Ready is a path that returns a 2xx status as soon as an instance is ready. If it is empty, an
	// instance is ready when it accepts connections.
	Ready string
	// Migrations prepare the database before the first instance starts.
	Migrations []Migration
}

// placeholders lists the names that can appear in braces in a service's command, such as {port}.
var placeholders = []string{
	"port", "instance", "number", "redis", "redis_host", "redis_port", "redlock",
	"redlock_1", "redlock_2", "redlock_3", "redlock_4", "redlock_5",
	"db", "db_host", "db_port", "db_user", "db_password", "db_name",
	postgres, "postgres_host", "postgres_port", "postgres_user", "postgres_password", "postgres_name", "ttl_ms", "work_ms",
}

// postgres is the placeholder for a PostgreSQL URL. If a command contains it, the stack runs
// PostgreSQL.
const postgres = "postgres"

// Placeholders returns a list of all placeholders, to be shown in error messages.
func Placeholders() string { return "{" + strings.Join(placeholders, "} {") + "}" }

// ParseService parses a service's command in shell syntax. Environment variables such as
// PORT={port} may precede the command.
func ParseService(text string) (s Service, err error) {
	s, err = parseCommand(text, placeholders)
	switch {
	case err != nil:
		return s, err
	case s.words == nil:
		return s, errors.New("must be a command, as in 'java -jar app.jar --server.port={port}'")
	case !s.Uses("port"):
		return s, errors.New("without {port}, all instances would listen on the same port: put {port} in the command in place of the port number")
	}
	return s, nil
}

// parseCommand parses a command, which may contain only the placeholders in names. If the command
// is empty, the result has no words.
func parseCommand(text string, names []string) (s Service, err error) {
	words, err := splitWords(text)
	if err != nil {
		return s, err
	}
	for _, w := range words {
		if _, err := target.ParseTemplate(w, names...); err != nil {
			return s, err
		}
	}
	n := slices.IndexFunc(words, func(w string) bool { return !assignment.MatchString(w) })
	if n >= 0 {
		s.env, s.words = words[:n], words[n:]
	}
	return s, nil
}

// These patterns match parts of a command.
var (
	assignment = regexp.MustCompile(`^\w+=`) // the beginning of an environment variable
	shellWord  = regexp.MustCompile(`(?s)(?:[^ \t\n'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+`)
	quoted     = regexp.MustCompile(`(?s)\\.|'[^']*'|"(?:[^"\\]|\\.)*"`) // a quoted or escaped part of a word
	escaped    = regexp.MustCompile(`(?s)\\(.)`)                         // an escaped character
)

// splitWords splits a command into words like a shell, but does not expand variables or patterns.
func splitWords(text string) (words []string, err error) {
	switch left := strings.TrimSpace(shellWord.ReplaceAllString(text, "")); {
	case strings.HasPrefix(left, `\`):
		return nil, errors.New(`the backslash at the end has no effect: remove it`)
	case left != "":
		return nil, fmt.Errorf("the quote %c is not closed: add a second %[1]c", left[0])
	}
	for _, word := range shellWord.FindAllString(text, -1) {
		words = append(words, quoted.ReplaceAllStringFunc(word, func(part string) string {
			if part[0] == '\\' {
				return part[1:]
			}
			inner := part[1 : len(part)-1]
			if part[0] == '"' {
				inner = escaped.ReplaceAllString(inner, "$1")
			}
			return inner
		}))
	}
	return words, nil
}

// Uses reports whether the command contains this placeholder or one that begins with its name, such
// as {redis_host} for redis.
func (s Service) Uses(name string) bool {
	return slices.ContainsFunc(slices.Concat(s.env, s.words), func(w string) bool {
		return strings.Contains(w, "{"+name+"}") || strings.Contains(w, "{"+name+"_")
	})
}

// UsesPostgres reports whether the command or a migration needs a PostgreSQL server.
func (s Service) UsesPostgres() bool {
	return s.Uses(postgres) || slices.ContainsFunc(s.Migrations, func(m Migration) bool { return m.command.Uses(postgres) })
}

// fill replaces the placeholders in the command with the port and number of the instance, and with the
// server addresses.
func (s Service) fill(port string, number int, at stack.Addresses, u Setup) (exe string, args, env []string, err error) {
	db, err := databaseAt(at.DSN)
	if err != nil {
		return "", nil, nil, fmt.Errorf("fleet: %w", err)
	}
	redisHost, redisPort, _ := net.SplitHostPort(at.Redis)
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	values := map[string]string{
		"port": port, "instance": port, "number": strconv.Itoa(number),
		"redis": at.Redis, "redis_host": redisHost, "redis_port": redisPort,
		"redlock": strings.Join(at.Redlock, ","),
		"ttl_ms":  ms(u.TTL), "work_ms": ms(u.Work),
	}
	for _, name := range []string{"db", postgres} {
		values[name], values[name+"_host"], values[name+"_port"] = at.DSN, db.host, db.port
		values[name+"_user"], values[name+"_password"], values[name+"_name"] = db.user, db.password, db.name
	}
	for i, addr := range at.Redlock {
		values[fmt.Sprintf("redlock_%d", i+1)] = addr
	}
	var pairs []string
	for _, name := range placeholders {
		pairs = append(pairs, "{"+name+"}", values[name])
	}
	filled := func(words []string) []string {
		return catalog.Map(words, func(w string) string { return strings.NewReplacer(pairs...).Replace(w) })
	}
	words := filled(s.words)
	return words[0], words[1:], filled(s.env), nil
}

type database struct{ host, port, user, password, name string }

// databaseAt parses a MySQL or PostgreSQL address.
func databaseAt(dsn string) (d database, err error) {
	if strings.HasPrefix(dsn, postgres+"://") {
		u, err := url.Parse(dsn)
		if err != nil {
			return d, err
		}
		password, _ := u.User.Password()
		return database{u.Hostname(), u.Port(), u.User.Username(), password, strings.TrimPrefix(u.Path, "/")}, nil
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return d, err
	}
	host, port, err := net.SplitHostPort(cfg.Addr)
	return database{host, port, cfg.User, cfg.Passwd, cfg.DBName}, err
}

// NewService is like New, but its instances run the user's service.
func NewService(cfg Config, s Service, st *stack.Stack, port int) *Fleet {
	f := New(cfg, st, port)
	f.Ours, f.service = false, &s
	return f
}

// Started reports whether the fleet starts its instances itself.
func (f *Fleet) Started() bool { return f.stack != nil }

// serviceTimeout is the start timeout for a service. It is long because Java services start slowly.
const serviceTimeout = 2 * time.Minute

// answers returns nil if a service's instance is ready. If another program uses its port, it
// returns stack.ErrPortTaken.
func (in *Instance) answers(ctx context.Context) error {
	if err := in.asked(ctx); err != nil {
		return err
	}
	if ours, known := in.listens(); known && !ours {
		return fmt.Errorf("%w: another program answers at this address. If the command starts it through a daemon, as docker run does, start the program itself", stack.ErrPortTaken)
	}
	return nil
}

// listens reports whether the service listens on its port, at any address.
func (in *Instance) listens() (listens, known bool) {
	port, _ := strconv.Atoi(in.ID)
	return proc.Listens(proc.Groups(in.proc.Pid()), port)
}

func (in *Instance) asked(ctx context.Context) error {
	if in.fleet.service.Ready != "" {
		_, err := in.fleet.client.do(ctx, http.MethodGet, in.URL+in.fleet.service.Ready, nil, http.Header{})
		return err
	}
	return stack.Accepts(ctx, in.addr)
}

// IsService reports whether the instances belong to a user's service that the fleet starts.
func (f *Fleet) IsService() bool { return f.service != nil }

// Grab requests an order for a driver that is not part of the load.
func (in *Instance) Grab(ctx context.Context, order, index int64) (grab.Outcome, error) {
	outcome, err := in.fleet.probe(ctx, callTimeout, in, order, in.fleet.ProbeDriver(index))
	if err != nil {
		err = fmt.Errorf("the test grab of order %s at %s failed: %w", in.fleet.Shape.OrderText(order), in.Name(), err)
	}
	return outcome, err
}

// AwaitGrab waits until an instance's connection pools work again after an outage. It sends rounds
// of concurrent requests for an order until two rounds in a row succeed. If this takes too long,
// it returns an error.
func (in *Instance) AwaitGrab(ctx context.Context, order int64, within time.Duration) error {
	const atOnce, rounds = 12, 2
	var failed error
	answered := 0 // consecutive rounds without an error
	ok, err := wait.Until(ctx, 20*time.Millisecond, within, func() (bool, error) {
		var g errgroup.Group
		bounded, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		for n := range int64(atOnce) {
			g.Go(func() error {
				_, err := in.Grab(bounded, order, n)
				return err
			})
		}
		answered++
		if failed = g.Wait(); failed != nil {
			answered = 0
		}
		return answered == rounds, nil
	})
	if err == nil && !ok {
		err = fmt.Errorf("%s does not answer grabs: %w", in.Name(), cmp.Or(failed, errSilent))
	}
	return err
}

// Migration is one step that prepares an empty database for a user's service.
type Migration struct {
	text      string
	statement string
	command   Service // without words if the step is an SQL statement
}

// byService means that the service prepares the database itself when its first instance starts.
const byService = "service"

// ParseMigration parses a step, which is "service", "sql: STATEMENT" or a command.
func ParseMigration(text string) (m Migration, err error) {
	m.text = strings.TrimSpace(text)
	if m.text == byService {
		return m, nil
	}
	if statement, ok := strings.CutPrefix(m.text, target.SQLPrefix); ok {
		if m.statement = strings.TrimSpace(statement); m.statement == "" {
			return m, errors.New("a statement must follow sql:, as in 'sql: CREATE TABLE orders (id BIGINT PRIMARY KEY)'")
		}
		return m, nil
	}
	ofInstances := []string{"port", "instance", "number", "ttl_ms", "work_ms"}
	names := catalog.Filter(placeholders, func(name string) bool { return !slices.Contains(ofInstances, name) })
	if m.command, err = parseCommand(text, names); err == nil && m.command.words == nil {
		err = errors.New("must be service, 'sql: STATEMENT', or a command, as in 'flyway -url=jdbc:mysql://{db_host}:{db_port}/{db_name} migrate'")
	}
	return m, err
}

// noShell returns a hint if the command contains shell syntax, because no shell runs it. s may be
// nil.
func (s *Service) noShell() string {
	if s == nil {
		return ""
	}
	for _, w := range slices.Concat(s.env, s.words) {
		if strings.HasPrefix(w, "~/") || strings.Contains(w, "=~/") {
			return fmt.Sprintf(": loadgen runs the command without a shell, so ~ in %s is not expanded: write the complete path", w)
		}
		if strings.HasPrefix(w, "<") || strings.HasPrefix(w, ">") || slices.Contains([]string{"|", "&&", ";", "cd", "export"}, w) {
			return fmt.Sprintf(": loadgen runs the command without a shell, so %s has no effect: use sh -c 'COMMAND'", w)
		}
	}
	return ""
}

// misread returns a hint if a program quotes the {db} address in its output, probably because it
// could not parse the address. s may be nil.
func (s *Service) misread(output string) string {
	quotes := strings.Contains(output, "@tcp(") || strings.Contains(output, "@tcp%28")
	if s == nil || !quotes || !slices.ContainsFunc(slices.Concat(s.env, s.words), func(w string) bool { return strings.Contains(w, "{db}") }) {
		return ""
	}
	return ". Only Go's MySQL driver can parse the address in {db}: use {postgres} for PostgreSQL, or {db_host}, {db_port} and so on for other MySQL drivers"
}

// wrongPassword returns a hint if the log says that the database has refused a user whose password
// is missing from the command. s may be nil.
func (s *Service) wrongPassword(log string) string {
	refused := map[string]string{"db": "Access denied for user", postgres: "password authentication failed"}
	for name, text := range refused {
		if s != nil && strings.Contains(log, text) && !s.Uses(name+"_password") {
			return fmt.Sprintf(": write {%s_user} and {%[1]s_password} where the command names the user and the password", name)
		}
	}
	return ""
}

// Migrate prepares the database for a user's service. Call it before Equip.
func (f *Fleet) Migrate(ctx context.Context, u Setup) error {
	for _, m := range f.service.Migrations {
		if err := f.migrate(ctx, m, u); err != nil {
			return fmt.Errorf("the migration step %.60q failed: %w", m.text, err)
		}
	}
	return nil
}

// migrate runs one migration step. The step is an SQL statement, a command, or a first start of the
// service.
func (f *Fleet) migrate(ctx context.Context, m Migration, u Setup) error {
	switch {
	case m.statement != "":
		db, err := ledger.Open(ctx, f.stack.DSN, "", nil)
		if err != nil {
			return err
		}
		return errors.Join(db.Exec(ctx, []string{m.statement}), db.Close())
	case m.command.words == nil:
		return f.Instances[0].equip(ctx, u)
	}
	exe, args, env, err := m.command.fill("", 0, f.stack.Addresses, u)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, serviceTimeout, fmt.Errorf("the command did not end within %v", serviceTimeout))
	defer cancel()
	p, err := f.stack.Spawn(ctx, "migrate", exe, args, env)
	if err != nil {
		return err
	}
	if err := p.Complete(ctx); err != nil {
		return fmt.Errorf("%w%s%s", err, m.command.noShell(), p.Quote())
	}
	return nil
}
