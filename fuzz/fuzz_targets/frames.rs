//! Bodies of gRPC, cut into messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wharf_wire::fuzz::frames(bytes));
