// Serves Kubernetes' mock CSI driver on a unix socket. Each call is one JSON line on standard output: method and
// answer code, never the request, which may hold secrets.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"log"
	"maps"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/driver"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"
)

func main() {
	endpoint := flag.String("endpoint", "", "unix socket to serve the CSI services on")
	name := flag.String("driver-name", service.Name, "driver name")
	nodeID := flag.String("node-id", "", "node ID; the driver name if empty")
	maxVolumes := flag.Int64("max-volumes", 0, "volumes that this node can hold; 0 is not told")
	attach := flag.Bool("attach", true, "offer ControllerPublishVolume")
	segments := map[string]string{}
	flag.Func("topology", "key=value, a topology segment of this node; may be repeated", func(segment string) error {
		key, value, _ := strings.Cut(segment, "=")
		segments[key] = value
		return nil
	})
	flag.Parse()

	mock := service.New(service.Config{
		DriverName:           *name,
		AttachLimit:          *maxVolumes,
		DisableAttach:        !*attach,
		EnableTopology:       len(segments) > 0,
		PermissiveTargetPath: true,
	})
	server := driver.NewCSIDriver(&driver.CSIDriverServers{
		Controller: mock,
		Identity:   mock,
		Node:       &node{NodeServer: mock, id: *nodeID, segments: segments},
	})
	listener, err := net.Listen("unix", strings.TrimPrefix(*endpoint, "unix://"))
	if err != nil {
		log.Fatalf("--endpoint: %v", err)
	}
	stop, release := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer release()
	if err := server.Start(listener, record); err != nil {
		log.Fatal(err)
	}
	<-stop.Done()
	server.Stop()
}

// The mock's node service has one fixed topology and takes the driver's name for the node ID.
type node struct {
	csi.NodeServer
	id       string
	segments map[string]string
}

func (n *node) NodeGetInfo(ctx context.Context, request *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	info, err := n.NodeServer.NodeGetInfo(ctx, request)
	if err != nil {
		return nil, err
	}
	if n.id != "" {
		info.NodeId = n.id
	}
	if len(n.segments) > 0 {
		info.AccessibleTopology = &csi.Topology{Segments: maps.Clone(n.segments)}
	}
	return info, nil
}

func record(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	answer, err := handler(ctx, request)
	_ = json.NewEncoder(os.Stdout).Encode(map[string]string{
		"method": info.FullMethod,
		"code":   status.Code(err).String(),
	})
	return answer, err
}
