//! Our own declarations of the wire protocols, and the code generated from them.
//!
//! Names, numbers and types of a protocol are facts; the files in `proto/` state them in our words and our order. A
//! test compares them with the descriptors inside the upstream Go bindings, both ways.
//!
//! Clients and servers are generated without a transport: `wharf-uds` brings it. Maps are ordered, so that equal
//! messages have equal bytes. Secrets never show: a message with a field marked `csi_secret` or `debug_redact` has a
//! `Debug` that prints `***stripped***` in place of its values.

mod redact;

/// Declares a module of generated code, where the `.proto` files are the documentation.
macro_rules! protocols {
    ($($module:ident),+ $(,)?) => {
        $(
            #[allow(missing_docs, unused_qualifications, clippy::all, reason = "generated code")]
            pub mod $module;
        )+
    };
}

protocols!(cri, csi, deviceplugin, dra, hooks, pluginregistration);

/// All declarations as an encoded `google.protobuf.FileDescriptorSet`, imports and custom options included.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

#[cfg(test)]
mod redaction_tests;
