package fault

import (
	"time"

	"grablab/internal/grab/lock"
)

// hang is work that never returns while its process lives (F15).
var hang = Fault{
	Name:     lock.Hang,
	About:    "the work of some holders never returns",
	Aim:      afterRead,
	Course:   Never,
	TTL:      time.Second,
	Patience: 1.5,
	Prepare:  staged(func(Target) []Act { return []Act{{}} }),
}
