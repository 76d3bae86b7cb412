//! The complete container runtime interface (`runtime.v1`).

tonic::include_proto!("runtime.v1");
