package search

// Fingerprint is a 64-bit FNV-1a hash of a state. Equal states have the same fingerprint in every
// process.
type Fingerprint uint64

// EmptyFingerprint is the initial value of every hash, before anything is added.
const EmptyFingerprint Fingerprint = 14695981039346656037

const fnvPrime Fingerprint = 1099511628211

// Text adds a text and a terminator to the hash. The terminator makes the hash of "ab" and "c"
// differ from that of "a" and "bc".
func (f Fingerprint) Text(t string) Fingerprint {
	for i := range len(t) {
		f = (f ^ Fingerprint(t[i])) * fnvPrime
	}
	return (f ^ 0xff) * fnvPrime
}

// Number adds a number to the hash.
func (f Fingerprint) Number(n int64) Fingerprint {
	for range 8 {
		f = (f ^ Fingerprint(n&0xff)) * fnvPrime
		n >>= 8
	}
	return f
}

// Flag adds a boolean to the hash, as 0 or 1.
func (f Fingerprint) Flag(b bool) Fingerprint {
	if b {
		return f.Number(1)
	}
	return f.Number(0)
}
