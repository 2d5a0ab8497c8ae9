package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/testbed/ledger"
	"grablab/internal/testbed/target"
)

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
	ctx, cancel := context.WithTimeout(ctx, serviceTimeout)
	defer cancel()
	p, err := f.stack.Spawn(ctx, "migrate", exe, args, env)
	if err != nil {
		return err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		_ = p.Stop(0)
		return fmt.Errorf("the command did not end within %v%s", serviceTimeout, p.Quote())
	}
	if err := p.Wait(); err != nil {
		return fmt.Errorf("%w%s%s", err, m.command.noShell(), p.Quote())
	}
	return nil
}
