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

// Hint ends the sentence that there is no such word: with the one of known that may have been
// meant, or else, if none is near, with otherwise.
func Hint(word string, known []string, otherwise string) string {
	if near := Nearest(word, known); near != "" {
		return "; did you mean " + near + "?"
	}
	return otherwise
}

// distance of two words: how many bytes must be put in, left out or changed.
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
