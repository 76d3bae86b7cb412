//! The container runtime interface, whole (`runtime.v1`).

tonic::include_proto!("runtime.v1");
