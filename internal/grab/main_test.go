package grab_test

import (
	"testing"

	"grablab/internal/testbed/stack/stacktest"
)

func TestMain(m *testing.M) { stacktest.Main(m) }
