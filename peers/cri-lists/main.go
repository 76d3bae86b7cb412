// The two ends of a long list, as a kubelet and a runtime are made: `serve` answers ListImages with gRPC for Go, `fetch`
// asks for it with the kubelet's own client and tells how many megabytes came in a second.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	client "k8s.io/cri-client/pkg"
)

// What a kubelet takes at most.
const limit = 16 << 20

func main() {
	socket := flag.String("socket", "", "unix socket to serve, or to ask")
	calls := flag.Int("calls", 1, "fetch: how many calls are timed, after one that is not")
	flag.Parse()
	var err error
	switch flag.Arg(0) {
	case "serve":
		err = serve(*socket)
	case "fetch":
		err = fetch(*socket, *calls)
	default:
		err = fmt.Errorf("expected serve or fetch, got %q", flag.Arg(0))
	}
	if err != nil {
		log.Fatal(err)
	}
}

type runtime struct {
	cri.UnimplementedImageServiceServer
	images []*cri.Image
}

func (r *runtime) ListImages(context.Context, *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	return &cri.ListImagesResponse{Images: r.images}, nil
}

// ImageFsInfo is what the client asks first.
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

func fetch(socket string, calls int) error {
	ctx := context.Background()
	service, err := client.NewRemoteImageService(ctx, "unix://"+socket, 30*time.Second, nil, false)
	if err != nil {
		return err
	}
	var images []*cri.Image
	var begun time.Time
	for call := 0; call <= calls; call++ {
		if call == 1 {
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

// Images that take as much as a kubelet takes, a few bytes less.
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
