// csi-resizer: the Go resizer that ours shares clusters with, and is measured against.
module github.com/wharf-dev/wharf/peers/csi-resizer

go 1.26.0

require github.com/kubernetes-csi/external-resizer v1.14.0
