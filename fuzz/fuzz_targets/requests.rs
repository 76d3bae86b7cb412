//! Requests of the runtime's interface, read for hooks and changed by them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    wharf_criproxy::fuzz::run_pod_sandbox(bytes);
    wharf_criproxy::fuzz::create_container(bytes);
    wharf_criproxy::fuzz::update_container_resources(bytes);
});
