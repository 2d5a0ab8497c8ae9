package catalog

// Nearest returns the known word that is most similar to word. It returns "" if no word is similar
// enough.
func Nearest(word string, known []string) string {
	best, at := "", max(1, len(word)/2)+1
	for _, k := range known {
		if d := distance(word, k); d < at && d < max(len(word), len(k)) {
			best, at = k, d
		}
	}
	return best
}

// Hint returns the end of an error message about an unknown word, such as "; did you mean crash?".
// If no known word is similar enough, it returns otherwise.
func Hint(word string, known []string, otherwise string) string {
	if near := Nearest(word, known); near != "" {
		return "; did you mean " + near + "?"
	}
	return otherwise
}

// distance returns how many edits it takes to turn a into b. An edit inserts, removes or changes one
// byte, or swaps two neighbours.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := range len(a) {
		for j := range len(b) {
			d := min(rows[i][j+1], rows[i+1][j]) + 1
			if a[i] == b[j] {
				d = min(d, rows[i][j])
			} else {
				d = min(d, rows[i][j]+1)
			}
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				d = min(d, rows[i-1][j-1]+1)
			}
			rows[i+1][j+1] = d
		}
	}
	return rows[len(a)][len(b)]
}
