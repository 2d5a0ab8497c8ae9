package fault

import (
	"time"

	"grablab/internal/grab/lock"
)

// dbRestart ends every session of the database, and with it the locks that live
// in one (F32). What was committed is there again.
var dbRestart = Fault{
	Name:     lock.DBRestart,
	About:    "the database killed and started again under its holders",
	Aim:      beforeClaim,
	TTL:      10 * time.Second,
	Patience: 0.1,
	On:       RealServers,
	Prepare:  staged(func(t Target) []Act { return []Act{{Strike: t.restart([]string{"db"})}} }),
}
