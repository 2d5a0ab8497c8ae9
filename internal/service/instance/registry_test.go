package instance_test

import (
	"slices"
	"testing"

	"grablab/internal/service/registry"
	"grablab/internal/service/registry/registrytest"
)

// TestInstanceIsRegistered checks that the registry lists an instance while it runs, but not afterwards.
func TestInstanceIsRegistered(t *testing.T) {
	server := registrytest.Start(t)
	source, err := registry.Parse("eureka:grabsvc@" + server)
	if err != nil {
		t.Fatal(err)
	}
	url, stop := run(t, configOf(t, "-strategy", "none", "-registry", "eureka="+server))
	eventually(t, "the registry lists the instance", func() bool {
		urls, err := source.Find(t.Context())
		return err == nil && slices.Equal(urls, []string{url})
	})
	stop()
	if urls, err := source.Find(t.Context()); err == nil {
		t.Errorf("after the end, the registry lists %q", urls)
	}
}
