// csi-provisioner: the Go provisioner that ours shares clusters with, and is measured against.
module github.com/wharf-dev/wharf/peers/csi-provisioner

go 1.26.0

require github.com/kubernetes-csi/external-provisioner/v5 v5.1.0
