// The kubelet's own client of its runtime, and a runtime in gRPC for Go that has long lists.
//
// `call` calls Version at one or several sockets, and prints a line for each: how long every call took, in nanoseconds.
// `serve` answers ListImages, and `fetch` prints how many megabytes of such answers came in a second.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	internal "k8s.io/cri-api/pkg/apis"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	client "k8s.io/cri-client/pkg"
)

const (
	// The largest answer that a kubelet takes.
	limit = 16 << 20
	// How long a call may take.
	patience = 30 * time.Second
)

func main() {
	socket := flag.String("socket", "", "serve, fetch: the unix socket")
	calls := flag.Int("calls", 1, "fetch, call: how many calls are timed at each socket")
	untimed := flag.Int("untimed", 1, "fetch, call: how many calls at each socket come before these")
	every := flag.Duration("every", 0, "call: a call begins this long after the one before it began; 0 is at once")
	flag.Parse()
	var err error
	switch flag.Arg(0) {
	case "serve":
		err = serve(*socket)
	case "fetch":
		err = fetch(*socket, *untimed, *calls)
	case "call":
		err = call(flag.Args()[1:], *untimed, *calls, *every)
	default:
		err = fmt.Errorf("expected serve, fetch or call, got %q", flag.Arg(0))
	}
	if err != nil {
		log.Fatal(err)
	}
}

// Calls the sockets in turns, each time in another order: a call finds the processors as the one before left them.
func call(sockets []string, untimed, calls int, every time.Duration) error {
	if len(sockets) == 0 {
		return errors.New("call: name one socket or more")
	}
	ctx := context.Background()
	var services []internal.RuntimeService
	for _, socket := range sockets {
		service, err := client.NewRemoteRuntimeService(ctx, "unix://"+socket, patience, nil, false)
		if err != nil {
			return fmt.Errorf("%s: %w", socket, err)
		}
		services = append(services, service)
	}
	took := make([][]string, len(services))
	due := time.Now()
	for round := range untimed + calls {
		for turn := range services {
			side := (round + turn) % len(services)
			due = due.Add(every)
			time.Sleep(time.Until(due))
			begun := time.Now()
			if _, err := services[side].Version(ctx, ""); err != nil {
				return fmt.Errorf("%s: %w", sockets[side], err)
			}
			if round >= untimed {
				took[side] = append(took[side], strconv.FormatInt(time.Since(begun).Nanoseconds(), 10))
			}
		}
	}
	for _, own := range took {
		fmt.Println(strings.Join(own, " "))
	}
	return nil
}

type runtime struct {
	cri.UnimplementedImageServiceServer
	images []*cri.Image
}

func (r *runtime) ListImages(context.Context, *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	return &cri.ListImagesResponse{Images: r.images}, nil
}

// ImageFsInfo is called first by the client.
func (r *runtime) ImageFsInfo(context.Context, *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	return &cri.ImageFsInfoResponse{}, nil
}

func serve(socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.MaxSendMsgSize(limit))
	cri.RegisterImageServiceServer(server, &runtime{images: images()})
	return server.Serve(listener)
}

func fetch(socket string, untimed, calls int) error {
	ctx := context.Background()
	service, err := client.NewRemoteImageService(ctx, "unix://"+socket, patience, nil, false)
	if err != nil {
		return err
	}
	var images []*cri.Image
	var begun time.Time
	for call := range untimed + calls {
		if call == untimed {
			begun = time.Now()
		}
		if images, err = service.ListImages(ctx, nil); err != nil {
			return err
		}
	}
	seconds := time.Since(begun).Seconds()
	size := proto.Size(&cri.ListImagesResponse{Images: images})
	fmt.Println(float64(size) * float64(calls) / 1e6 / seconds)
	return nil
}

// Images that together take a few bytes less than the limit.
func images() []*cri.Image {
	var images []*cri.Image
	left := limit
	for number := 0; ; number++ {
		image := &cri.Image{
			Id:          fmt.Sprintf("sha256:%064x", number),
			RepoTags:    []string{fmt.Sprintf("registry.example.com/team/server:%d", number)},
			RepoDigests: []string{fmt.Sprintf("registry.example.com/team/server@sha256:%064x", number)},
			Size:        123_456_789,
		}
		// Each has a tag of one byte and a length of two.
		left -= 3 + proto.Size(image)
		if left < 0 {
			return images
		}
		images = append(images, image)
	}
}
