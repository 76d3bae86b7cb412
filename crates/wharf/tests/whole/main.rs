//! The driver and all sidecars in a whole cluster: kube-controller-manager, kube-scheduler and
//! kubelet do their part, and tests make what users make. Judged by the objects that users see and
//! by the bytes that pods read.

mod apart;
mod attributes;
mod bytes;
mod growth;
mod health;
mod leftovers;
mod node;
mod objects;
mod raw;
mod rig;
mod room;
mod world;
