package registry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// DefaultEureka is the default address of a Eureka server.
const DefaultEureka = "http://127.0.0.1:8761/eureka"

// DefaultRenew is the default interval between renewals of a registration. Eureka servers expect
// this interval.
const DefaultRenew = 30 * time.Second

const (
	// leaseFactor is how long a registration lasts without a renewal, as a multiple of the renewal
	// interval.
	leaseFactor = 3
	// callTimeout limits a single call to the server.
	callTimeout = 5 * time.Second
	// retryAfter limits the pause before a retry.
	retryAfter = 5 * time.Second
)

// up is the status of an instance that accepts requests.
const up = "UP"

var errUnknown = errors.New("the server does not know this instance")

// client opens a new connection for each call, because the calls are too rare to keep connections
// open.
var client = &http.Client{Timeout: callTimeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}}

// Eureka is a client for a Eureka server. It is safe for concurrent use.
type Eureka struct{ base *url.URL }

// ParseEureka returns a client for the Eureka server at a URL. If the URL has no path, it adds
// /eureka.
func ParseEureka(text string) (*Eureka, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("%q must be the URL of a Eureka server, such as %s", text, DefaultEureka)
	}
	u.Path = cmp.Or(strings.TrimRight(u.Path, "/"), "/eureka")
	return &Eureka{u}, nil
}

// Self describes the instance that registers itself.
type Self struct {
	App   string
	Addr  *net.TCPAddr  // address at which the instance listens
	Renew time.Duration // interval between renewals; 0 means DefaultRenew
}

type registration struct {
	ID         string `json:"instanceId"`
	Host       string `json:"hostName"`
	App        string `json:"app"`
	IP         string `json:"ipAddr"`
	VIP        string `json:"vipAddress"`
	Status     string `json:"status"`
	Port       port   `json:"port"`
	SecurePort port   `json:"securePort"`
	DataCenter struct {
		Class string `json:"@class"`
		Name  string `json:"name"`
	} `json:"dataCenterInfo"`
	Lease struct {
		Renew    int `json:"renewalIntervalInSecs"`
		Duration int `json:"durationInSecs"`
	} `json:"leaseInfo"`
}

type port struct {
	Number  int    `json:"$"`
	Enabled string `json:"@enabled"`
}

// registration returns the data to register. If the instance listens on all addresses, it registers the
// address from which this machine reaches the server.
func (s Self) registration(server *url.URL) (registration, error) {
	ip := s.Addr.IP
	if len(ip) == 0 || ip.IsUnspecified() {
		route, err := net.Dial("udp", net.JoinHostPort(server.Hostname(), cmp.Or(server.Port(), "80"))) // determines the route without sending anything
		if err != nil {
			return registration{}, err
		}
		defer route.Close()
		ip = route.LocalAddr().(*net.UDPAddr).IP
	}
	r := registration{
		ID: fmt.Sprintf("%s:%s:%d", ip, s.App, s.Addr.Port), Host: ip.String(), IP: ip.String(), App: strings.ToUpper(s.App), VIP: s.App, Status: up,
		Port: port{s.Addr.Port, "true"}, SecurePort: port{443, "false"},
	}
	r.DataCenter.Class, r.DataCenter.Name = "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "MyOwn"
	r.Lease.Renew = int(s.renew().Seconds())
	r.Lease.Duration = leaseFactor * r.Lease.Renew
	return r, nil
}

func (s Self) renew() time.Duration { return cmp.Or(s.Renew, DefaultRenew) }

// Announce keeps an instance registered until ctx ends, and then removes it. It retries a failed
// call after a pause.
func (e *Eureka) Announce(ctx context.Context, self Self, log *slog.Logger) {
	var registered *registration
	for ctx.Err() == nil {
		pause := self.renew()
		var err error
		if registered != nil {
			err = e.call(ctx, http.MethodPut, registered, nil, nil)
		}
		if registered == nil || errors.Is(err, errUnknown) {
			registered, err = e.register(ctx, self, log)
		}
		if err != nil && ctx.Err() == nil {
			pause = min(pause, retryAfter)
			log.Warn("cannot renew this instance's entry in the service registry", "registry", e.base.String(), "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	if registered == nil {
		return
	}
	if err := e.call(context.WithoutCancel(ctx), http.MethodDelete, registered, nil, nil); err != nil {
		log.Warn("cannot remove this instance from the service registry: its entry expires by itself", "registry", e.base.String(), "error", err)
	}
}

func (e *Eureka) register(ctx context.Context, self Self, log *slog.Logger) (*registration, error) {
	r, err := self.registration(e.base)
	if err != nil {
		return nil, err
	}
	body := map[string]registration{"instance": r}
	// If ctx ends now, wait for the reply: the server may have registered the instance, which must then be removed.
	if err := e.call(context.WithoutCancel(ctx), http.MethodPost, &registration{App: r.App}, body, nil); err != nil {
		return nil, err
	}
	log.Info("registered", "registry", e.base.String(), "app", r.App, "id", r.ID)
	return &r, nil
}

// Instances returns the base URLs of an application's instances that accept requests.
func (e *Eureka) Instances(ctx context.Context, app string) ([]string, error) {
	var reply struct {
		Application struct {
			Instance []registration `json:"instance"`
		} `json:"application"`
	}
	err := e.call(ctx, http.MethodGet, &registration{App: app}, nil, &reply)
	if err != nil && !errors.Is(err, errUnknown) {
		return nil, err
	}
	var urls []string
	for _, r := range reply.Application.Instance {
		switch {
		case r.Status != up:
		case r.Port.Enabled == "false" && r.SecurePort.Enabled == "true":
			urls = append(urls, baseURL("https", r.Host, r.SecurePort.Number))
		default:
			urls = append(urls, baseURL("http", r.Host, r.Port.Number))
		}
	}
	return urls, nil
}

// call sends a request about an instance or an application. If the server responds with status 404,
// it returns errUnknown.
func (e *Eureka) call(ctx context.Context, method string, of *registration, body, reply any) error {
	var text bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&text).Encode(body); err != nil {
			return err
		}
	}
	target := e.base.JoinPath("apps", url.PathEscape(of.App), url.PathEscape(of.ID)).String()
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(target, "/"), &text)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return errUnknown
	case resp.StatusCode/100 != 2:
		return fmt.Errorf("%s %s: %s", method, req.URL.Path, resp.Status)
	case reply == nil:
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(reply)
}
