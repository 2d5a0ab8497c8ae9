package explore

// sum is an FNV-1a hash of 64 bits: the same in every process.
type sum uint64

const (
	emptySum sum = 14695981039346656037
	fnvPrime sum = 1099511628211
)

func (s sum) bytes(b []byte) sum {
	for _, c := range b {
		s = (s ^ sum(c)) * fnvPrime
	}
	return (s ^ 0xff) * fnvPrime
}

func (s sum) text(t string) sum {
	for i := range len(t) {
		s = (s ^ sum(t[i])) * fnvPrime
	}
	return (s ^ 0xff) * fnvPrime
}

func (s sum) number(n int64) sum {
	for range 8 {
		s = (s ^ sum(n&0xff)) * fnvPrime
		n >>= 8
	}
	return s
}

func (s sum) flag(b bool) sum {
	if b {
		return s.number(1)
	}
	return s.number(0)
}
