//! Declarations of the wire protocols, and the code generated from them.
//!
//! The names, numbers and types of a protocol are facts; the files in `proto/` state them in our
//! own words and order. A test compares them with the descriptors in the upstream Go bindings, in
//! both directions.
//!
//! Clients and servers are generated without a transport, which `wharf-uds` provides. Maps are
//! ordered, so that equal messages have equal bytes. Secrets are not printed: a message with a
//! field marked `csi_secret` or `debug_redact` has a `Debug` that prints `***stripped***` in place
//! of the values.
//!
//! - [`csi`]: the Container Storage Interface.
//! - [`cri`]: the Container Runtime Interface; [`hooks`]: hook servers of a CRI proxy.
//! - [`pluginregistration`], [`deviceplugin`], [`dra`]: the kubelet's plugin interfaces.

mod redact;

/// Declares a module of generated code. Its documentation is in the `.proto` files.
macro_rules! protocols {
    ($($module:ident),+ $(,)?) => {
        $(
            #[allow(missing_docs, unused_qualifications, clippy::all, reason = "generated code")]
            pub mod $module;
        )+
    };
}

protocols!(cri, csi, deviceplugin, dra, hooks, pluginregistration);

/// All declarations as an encoded `google.protobuf.FileDescriptorSet`, imports and custom options
/// included.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
