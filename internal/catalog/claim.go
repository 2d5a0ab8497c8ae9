package catalog

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Claim is the result that we expect from a strategy under a fault.
type Claim struct {
	Order     Verdict // Unknown means that the verdict depends on chance
	Exclusive bool    // whether the lock lets at most one holder at a time into the critical section
}

// These claims are common exceptions to claimTable.
var (
	Holds        = Claim{Safe, true}
	TwoInside    = Claim{Safe, false} // two holders can be in the critical section, but only one can win
	GrabbedTwice = Claim{Unsafe, false}
	GetsStuck    = Claim{Stuck, true}
	ByChance     = Claim{Unknown, false}
)

// Claims maps each fault to the result that we expect from a strategy. If a fault has no entry, we
// expect the order to be safe.
type Claims map[Fault]Claim

// claimsByColumn maps each column name in claimTable to the column's claims.
var claimsByColumn = parseClaims(claimTable)

// ClaimsOf returns the claims in a column of claimTable. It panics if the column does not exist.
func ClaimsOf(column string) Claims {
	claims, ok := claimsByColumn[column]
	if !ok {
		panic(fmt.Sprintf("catalog: claimTable has no column %q", column))
	}
	return claims
}

// Always returns claims that expect the same result under every fault.
func Always(c Claim) Claims {
	claims := make(Claims, len(RunFaults))
	for _, f := range RunFaults {
		claims[f] = c
	}
	return claims
}

// But returns a copy of the claims that expects c under the given faults.
func (claims Claims) But(c Claim, under ...Fault) Claims {
	changed := maps.Clone(claims)
	for _, f := range under {
		changed[f] = c
	}
	return changed
}

// Fenced returns the claims for the same lock if the database also checks a fencing token. The lock may
// still let two holders in, but the order is safe.
func (claims Claims) Fenced() Claims {
	fenced := maps.Clone(claims)
	for f, c := range fenced {
		if c.Order == Unsafe {
			fenced[f] = Claim{Safe, c.Exclusive}
		}
	}
	return fenced
}

// Order returns the expected verdict on orders under the fault, or Safe if the fault has no entry.
func (claims Claims) Order(f Fault) Verdict {
	if c, ok := claims[f]; ok {
		return c.Order
	}
	return Safe
}

// KindsThatFail returns how many kinds of locks we expect to be unsafe or stuck under a fault.
func KindsThatFail(f Fault) (n int) {
	for _, claims := range claimsByColumn {
		if claims.Order(f).IsFailure() {
			n++
		}
	}
	return n
}

// parseClaims panics if the table is invalid.
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
		_, again := parsed[columns[0]][fault]
		if again || !slices.Contains(RunFaults, fault) || len(cells) != 1+len(columns) {
			panic(fmt.Sprintf("catalog: claimTable: %q: want the name of another run fault and %d cells", line, len(columns)))
		}
		for i, column := range columns {
			parsed[column][fault] = parseClaim(cells[1+i])
		}
	}
	return parsed
}

// parseClaim parses a cell, such as "U.". claimTable explains the letters. It panics if the cell is
// invalid.
func parseClaim(cell string) Claim {
	order, ok := map[byte]Verdict{'.': Safe, 'U': Unsafe, 'S': Stuck, '?': Unknown, '/': NA}[cell[0]]
	if !ok || len(cell) != 2 || cell[1] != '.' && cell[1] != 'x' {
		panic(fmt.Sprintf("catalog: claimTable: invalid claim %q", cell))
	}
	return Claim{order, cell[1] == '.'}
}
