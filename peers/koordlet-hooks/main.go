//go:build ignore

// koordlet's hook server with its gpu, batchresource and cpuset hooks. It is built inside a copy of koordinator's
// module, whose replace lines it needs.
package main

import (
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"

	topology "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha1"
	"github.com/koordinator-sh/koordinator/apis/extension"
	"github.com/koordinator-sh/koordinator/pkg/koordlet/resourceexecutor"
	"github.com/koordinator-sh/koordinator/pkg/koordlet/runtimehooks/hooks"
	"github.com/koordinator-sh/koordinator/pkg/koordlet/runtimehooks/hooks/batchresource"
	"github.com/koordinator-sh/koordinator/pkg/koordlet/runtimehooks/hooks/cpuset"
	"github.com/koordinator-sh/koordinator/pkg/koordlet/runtimehooks/hooks/gpu"
	"github.com/koordinator-sh/koordinator/pkg/koordlet/runtimehooks/proxyserver"
	"github.com/koordinator-sh/koordinator/pkg/koordlet/runtimehooks/rule"
	"github.com/koordinator-sh/koordinator/pkg/koordlet/statesinformer"
	"github.com/koordinator-sh/koordinator/pkg/runtimeproxy/config"
	"k8s.io/klog/v2"
)

func main() {
	klog.InitFlags(nil)
	address := flag.String("runtime-hooks-addr", "/var/run/koordlet/koordlet.sock", "socket to serve")
	endpoint := flag.String("runtime-hooks-host-endpoint", "/var/run/koordlet/koordlet.sock", "socket to register")
	folder := flag.String("runtime-hooks-config-path", "/etc/runtime/hookserver.d", "folder to register in")
	pool := flag.String("cpu-shared-pool", "", "cpus of pods of class LS, as koord-scheduler would tell")
	flag.Parse()

	// An executor that does not run writes to no control group.
	executor := resourceexecutor.NewResourceUpdateExecutor()
	options := hooks.Options{Reader: resourceexecutor.NewCgroupReader(), Executor: executor}
	gpu.Object().Register(options)
	batchresource.Object().Register(options)
	cpuset.Object().Register(options)
	if *pool != "" {
		node := &topology.NodeResourceTopology{}
		node.Annotations = map[string]string{
			extension.AnnotationNodeCPUSharedPools: `[{"cpuset":"` + *pool + `"}]`,
		}
		rule.UpdateRules(statesinformer.RegisterTypeNodeTopology, node, &statesinformer.CallbackTarget{})
	}

	server, err := proxyserver.NewServer(proxyserver.Options{
		Network:             "unix",
		Address:             *address,
		HostEndpoint:        *endpoint,
		FailurePolicy:       config.PolicyIgnore,
		PluginFailurePolicy: config.PolicyIgnore,
		ConfigFilePath:      *folder,
		Executor:            executor,
	})
	for _, step := range []func() error{server.Setup, server.Start, server.Register} {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		log.Fatal(err)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
	server.Stop()
}
