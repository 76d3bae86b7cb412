//go:build tools

// Package suite keeps go.mod complete: the tests of what is imported here are built, and `go mod tidy` looks at
// imports only.
package suite

import _ "k8s.io/kubernetes/test/e2e"
