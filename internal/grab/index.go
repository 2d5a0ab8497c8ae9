package grab

import (
	"html/template"
	"net/http"

	"github.com/gin-gonic/gin"
)

// Index is the body of GET /. It names the instance and links to its API.
type Index struct {
	Service  string `json:"service"`
	Instance string `json:"instance"`
	Strategy string `json:"strategy"`
	OpenAPI  string `json:"openapi"`
	Lab      string `json:"lab,omitempty"` // the page that shows this instance
}

// indexPage shows the content of Index to a browser.
var indexPage = template.Must(template.New("index").Parse(`<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>grabsvc {{.Instance}}</title>
<h1>grabsvc {{.Instance}}</h1>
<p>{{.Service}}. Its strategy is {{.Strategy}}.</p>
<ul>
<li><a href="{{.OpenAPI}}">{{.OpenAPI}}</a> describes the API</li>
<li><a href="/metrics">/metrics</a>, <a href="/readyz">/readyz</a>, <a href="/strategies">/strategies</a></li>
{{with .Lab}}<li><a href="{{.}}">the lab</a> that started this instance</li>
{{end}}</ul>
</html>
`))

func (a api) index(c *gin.Context) {
	i := Index{"One instance of a service that lets drivers grab orders", a.cfg.Instance, a.Strategy(), "/openapi.json", a.http.Lab}
	if c.NegotiateFormat(gin.MIMEJSON, gin.MIMEHTML) != gin.MIMEHTML {
		c.JSON(http.StatusOK, i)
		return
	}
	c.Header("Content-Security-Policy", "default-src 'none'; img-src data:")
	c.Header("Content-Type", "text/html; charset=utf-8")
	c.Status(http.StatusOK)
	_ = indexPage.Execute(c.Writer, i) // this fails only if the client has disconnected
}
