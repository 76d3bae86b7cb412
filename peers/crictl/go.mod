// crictl: calls to a container runtime, as a person makes them.
module wharf.dev/peers/crictl

go 1.26.0

require sigs.k8s.io/cri-tools v1.36.0
