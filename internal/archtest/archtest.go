// Package archtest holds tests of the project as a whole: who may import whom,
// that everything is documented, and that docker-compose.yml fits the binaries.
package archtest
