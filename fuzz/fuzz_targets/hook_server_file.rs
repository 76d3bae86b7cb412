//! The file of a hook server.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wharf_criproxy::fuzz::hook_server_file(bytes));
