//! Protobuf messages, walked and edited.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    wharf_wire::fuzz::walk(bytes);
    wharf_wire::fuzz::edit(bytes);
});
