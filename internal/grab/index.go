package grab

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// Index is the response body of GET /, with links to the instance's API and web page.
type Index struct {
	Service  string `json:"service"`
	Instance string `json:"instance"`
	Strategy string `json:"strategy"`
	OpenAPI  string `json:"openapi"`
	Lab      string `json:"lab,omitempty"` // URL of the lab's page; empty if the lab did not start this instance
}

func (a api) index(c *gin.Context) {
	c.JSON(http.StatusOK, Index{
		Service:  "One instance of a service that lets drivers grab orders",
		Instance: a.cfg.Instance,
		Strategy: a.Strategy(),
		OpenAPI:  "/openapi.json",
		Lab:      a.http.Lab,
	})
}
