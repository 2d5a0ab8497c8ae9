// Package archtest tests the project as a whole, such as its imports and its documents.
package archtest
