//! CSI 1.13, alpha parts included, and the parts of 1.12 that it removed (`csi.v1`).

tonic::include_proto!("csi.v1");
