// koordlet-hooks: koordlet's hook server, without the rest of koordlet. In v1.4.0 it dies of its first container hook.
module github.com/wharf-dev/wharf/peers/koordlet-hooks

go 1.26.0

require github.com/koordinator-sh/koordinator v1.4.1
