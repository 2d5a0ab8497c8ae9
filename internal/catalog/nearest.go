package catalog

// Nearest returns the known word that is most similar to word, or "" if none is similar enough.
func Nearest(word string, known []string) string {
	best, at := "", max(1, len(word)/2)+1
	for _, k := range known {
		if d := distance(word, k); d < at {
			best, at = k, d
		}
	}
	return best
}

// Hint returns the end of an error message about an unknown word. It suggests the known word that
// is most similar. If none is similar enough, it returns otherwise.
func Hint(word string, known []string, otherwise string) string {
	if near := Nearest(word, known); near != "" {
		return "; did you mean " + near + "?"
	}
	return otherwise
}

// distance returns the Levenshtein distance of two words: the number of bytes to insert, remove
// or change.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
