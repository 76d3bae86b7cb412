//! Hook servers of a runtime proxy (`runtime.v1alpha1`).

tonic::include_proto!("runtime.v1alpha1");
