package grab

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"

	"grablab/internal/grab/lock"

	"github.com/gin-gonic/gin"
	"golang.org/x/net/http/httpguts"
)

// recover answers a panic with 500 and a log line. http.ErrAbortHandler is for
// net/http.
func (a api) recover(c *gin.Context) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == http.ErrAbortHandler {
			panic(p)
		}
		a.http.Log.Error("panic", "path", c.Request.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		refuse(c, http.StatusInternalServerError, "internal error")
	}()
	c.Next()
}

// sameSite keeps web pages out that a browser on this host happens to show:
// those that call across sites, and, where only this host can call at all,
// those that have pointed their own name at it (DNS rebinding).
func (a api) sameSite(c *gin.Context) {
	if !a.http.Public && !isLoopback(c.Request.Host) {
		refuse(c, http.StatusForbidden, "this instance is localhost, not %.80s", c.Request.Host)
		return
	}
	if err := crossOrigin.Check(c.Request); err != nil {
		refuse(c, http.StatusForbidden, "web pages of other sites may not call this")
	}
}

var crossOrigin = http.NewCrossOriginProtection()

// isLoopback says whether host, with or without a port, is this host's name or
// address for itself.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap().IsLoopback()
}

// admin lets a call pass that changes state: on loopback any, else only one that
// bears the admin token.
func (a api) admin(c *gin.Context) {
	if !a.http.Public {
		return
	}
	if a.http.AdminToken == "" {
		refuse(c, http.StatusForbidden, "this instance listens beyond loopback and has no -admin-token, so this call is refused")
		return
	}
	scheme, token, _ := strings.Cut(c.GetHeader("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || !sameText(token, a.http.AdminToken) {
		c.Header("WWW-Authenticate", `Bearer realm="grabsvc"`)
		refuse(c, http.StatusUnauthorized, "this call needs the header Authorization: Bearer <admin token>")
	}
}

// mayUse is nil for a strategy that a call may ask for. Of an instance that strangers
// reach, none may ask for one that is known to be broken.
func (a api) mayUse(name string) error {
	if a.http.Public && !slices.Contains(lock.Names(), name) {
		return badRequest("bad_strategy", "no strategy %.40q; there are %s", name, strings.Join(lock.Names(), ", "))
	}
	return nil
}

// CheckToken refuses an admin token that no header can carry. "" is none.
func CheckToken(token string) error {
	if !httpguts.ValidHeaderFieldValue(token) || strings.TrimSpace(token) != token {
		return errors.New("want a text that a header can carry: without control characters, and without blanks around it")
	}
	return nil
}

// sameText compares in a time that tells nothing of the texts, nor of their lengths.
func sameText(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
