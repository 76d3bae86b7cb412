//! CSI 1.13 whole, alpha parts included, with what 1.12 had in addition (`csi.v1`).

tonic::include_proto!("csi.v1");
