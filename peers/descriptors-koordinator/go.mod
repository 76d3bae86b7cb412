module github.com/wharf-dev/wharf/peers/descriptors-koordinator

go 1.25

require (
	github.com/koordinator-sh/koordinator v1.4.0
	google.golang.org/protobuf v1.36.11
)

require (
	github.com/golang/protobuf v1.5.3 // indirect
	golang.org/x/net v0.16.0 // indirect
	golang.org/x/sys v0.13.0 // indirect
	golang.org/x/text v0.13.0 // indirect
	google.golang.org/genproto v0.0.0-20220920201722-2b89144ce006 // indirect
	google.golang.org/grpc v1.51.0 // indirect
)
