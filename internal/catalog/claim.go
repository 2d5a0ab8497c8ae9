package catalog

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Claim says what is expected of a strategy under a fault.
type Claim struct {
	Order     Verdict // Unknown means that the result depends on chance
	Exclusive bool    // at most one holder is inside at a time
}

// Frequent exceptions to claimTable.
var (
	Holds        = Claim{Safe, true}
	TwoInside    = Claim{Safe, false} // two holders can be inside, but only one can win
	GrabbedTwice = Claim{Unsafe, false}
	GetsStuck    = Claim{Stuck, true}
	ByChance     = Claim{Unknown, false}
)

// Claims maps each fault to the expected result of a strategy. If a fault has no entry, it should
// not harm the order.
type Claims map[Fault]Claim

// table holds claimTable by column.
var table = parseClaims(claimTable)

// ClaimsOf returns a column of claimTable. It panics if there is no such column.
func ClaimsOf(column string) Claims {
	claims, ok := table[column]
	if !ok {
		panic(fmt.Sprintf("catalog: claimTable has no column %q", column))
	}
	return claims
}

// Always returns claims that are the same under every fault.
func Always(c Claim) Claims {
	claims := make(Claims, len(RunFaults))
	for _, f := range RunFaults {
		claims[f] = c
	}
	return claims
}

// But returns a copy of the claims in which c replaces the entries for these faults.
func (claims Claims) But(c Claim, under ...Fault) Claims {
	changed := maps.Clone(claims)
	for _, f := range under {
		changed[f] = c
	}
	return changed
}

// Fenced returns what is expected of the same lock if the database checks its fencing token. The lock
// may still have two holders, but the order is safe.
func (claims Claims) Fenced() Claims {
	fenced := maps.Clone(claims)
	for f, c := range fenced {
		if c.Order == Unsafe {
			fenced[f] = Claim{Safe, c.Exclusive}
		}
	}
	return fenced
}

// Order returns the expected verdict on the order. It is Safe if there is no entry for the fault.
func (claims Claims) Order(f Fault) Verdict {
	if c, ok := claims[f]; ok {
		return c.Order
	}
	return Safe
}

// KindsThatFail returns how many kinds of locks are expected to fail under a fault.
func KindsThatFail(f Fault) (n int) {
	for _, claims := range table {
		if v := claims.Order(f); v == Unsafe || v == Stuck {
			n++
		}
	}
	return n
}

// parseClaims parses claimTable. It panics if the table is malformed.
func parseClaims(text string) map[string]Claims {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	columns := strings.Fields(lines[0])
	parsed := make(map[string]Claims, len(columns))
	for _, column := range columns {
		parsed[column] = Claims{}
	}
	for _, line := range lines[1:] {
		cells := strings.Fields(line)
		fault := Fault(cells[0])
		if !slices.Contains(RunFaults, fault) || len(cells) != 1+len(columns) {
			panic(fmt.Sprintf("catalog: claimTable: %q needs the name of a fault of run and %d cells", line, len(columns)))
		}
		for i, column := range columns {
			parsed[column][fault] = parseClaim(cells[1+i])
		}
	}
	return parsed
}

// parseClaim parses a cell of claimTable.
func parseClaim(cell string) Claim {
	order, ok := map[byte]Verdict{'.': Safe, 'U': Unsafe, 'S': Stuck, '?': Unknown, '/': NA}[cell[0]]
	if !ok || len(cell) != 2 || cell[1] != '.' && cell[1] != 'x' {
		panic(fmt.Sprintf("catalog: claimTable: no claim is written %q", cell))
	}
	return Claim{order, cell[1] == '.'}
}
