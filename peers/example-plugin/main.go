// Serves the kubelet's example plugin on a unix socket. What happens to it is one JSON line each on standard
// output: listening, GetInfo, NotifyRegistrationStatus.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager/pluginwatcher"
)

func main() {
	socket := flag.String("socket", "", "unix socket to serve the registration service on")
	name := flag.String("name", "", "plugin name")
	kind := flag.String("type", "CSIPlugin", "plugin type: CSIPlugin, DevicePlugin, DRAPlugin")
	endpoint := flag.String("endpoint", "", "endpoint to advertise; the socket if empty")
	versions := flag.String("versions", "1.0.0", "supported versions, separated by commas")
	flag.Parse()
	if *endpoint == "" {
		*endpoint = *socket
	}

	listener, err := net.Listen("unix", *socket)
	if err != nil {
		log.Fatalf("--socket: %v", err)
	}
	stop, release := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer release()
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, &plugin{
		told:  pluginwatcher.NewTestExamplePlugin(*name, *kind, *endpoint, strings.Split(*versions, ",")...),
		asked: pluginwatcher.NewExamplePlugin(),
	})
	record(map[string]any{"event": "listening", "socket": *socket})
	go func() {
		<-stop.Done()
		server.Stop()
	}()
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}

// The example plugin comes in two forms. The one with a name hands each status to a channel that only its own
// package can read, and would wait there for ever: it answers GetInfo only, the one without a channel the rest.
type plugin struct {
	registration.UnimplementedRegistrationServer
	told, asked registration.RegistrationServer
}

func (p *plugin) GetInfo(ctx context.Context, request *registration.InfoRequest) (*registration.PluginInfo, error) {
	record(map[string]any{"event": "GetInfo", "authority": authority(ctx)})
	return p.told.GetInfo(ctx, request)
}

func (p *plugin) NotifyRegistrationStatus(ctx context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	record(map[string]any{
		"event":             "NotifyRegistrationStatus",
		"authority":         authority(ctx),
		"plugin_registered": status.GetPluginRegistered(),
		"error":             status.GetError(),
	})
	return p.asked.NotifyRegistrationStatus(ctx, status)
}

// What the caller sent as :authority, which for a kubelet is the socket's path, percent-encoded.
func authority(ctx context.Context) string {
	headers, _ := metadata.FromIncomingContext(ctx)
	return strings.Join(headers.Get(":authority"), ",")
}

func record(event map[string]any) {
	_ = json.NewEncoder(os.Stdout).Encode(event)
}
