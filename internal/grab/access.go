package grab

import (
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

// recover logs a panic in a handler and responds with status 500. It leaves http.ErrAbortHandler to
// net/http. gin.Recovery would send status 200 if a lock panics because its server closes a connection.
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

// sameSite rejects requests from web pages on other sites. If only this host can reach the
// instance, sameSite also rejects requests whose Host header is not a loopback name, to prevent DNS
// rebinding.
func (a api) sameSite(c *gin.Context) {
	if !a.http.Public && !isLoopback(c.Request.Host) {
		refuse(c, http.StatusForbidden, "unexpected host %.80q: use localhost or 127.0.0.1", c.Request.Host)
		return
	}
	if err := crossOrigin.Check(c.Request); err != nil {
		refuse(c, http.StatusForbidden, "cross-site request refused: call it from one of this instance's pages, or from a program")
	}
}

var crossOrigin = http.NewCrossOriginProtection()

// isLoopback reports whether host is a loopback address. host may include a port.
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

// admin rejects a request without the admin token if other hosts can reach the instance.
func (a api) admin(c *gin.Context) {
	if !a.http.Public {
		return
	}
	if a.http.AdminToken == "" {
		refuse(c, http.StatusForbidden, "call refused, because this instance listens beyond loopback: start it with -admin-token")
		return
	}
	scheme, token, _ := strings.Cut(c.GetHeader("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare([]byte(token), []byte(a.http.AdminToken)) == 0 {
		c.Header("WWW-Authenticate", `Bearer realm="grabsvc"`)
		refuse(c, http.StatusUnauthorized, "missing or wrong admin token: send the header Authorization: Bearer <admin token>")
	}
}

// mayUse returns an error if a request must not select the named strategy. If other hosts can reach
// the instance, they may select only the strategies in lock.Names, which omits those in
// lock.KnownBroken.
func (a api) mayUse(name string) error {
	if a.http.Public && !slices.Contains(lock.Names(), name) {
		return badRequest("bad_strategy", "unknown strategy %.40q: use one of %s", name, strings.Join(lock.Names(), ", "))
	}
	return nil
}

// CheckToken returns an error if token cannot be sent in an HTTP header. An empty token is valid.
func CheckToken(token string) error {
	if !httpguts.ValidHeaderFieldValue(token) || strings.TrimSpace(token) != token {
		return errors.New("not a valid header value: remove control characters and surrounding spaces")
	}
	return nil
}
