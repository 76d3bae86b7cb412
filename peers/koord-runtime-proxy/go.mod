// koord-runtime-proxy: the runtime proxy that ours is measured against.
module github.com/wharf-dev/wharf/peers/koord-runtime-proxy

go 1.26.0

require github.com/koordinator-sh/koordinator v1.4.0
