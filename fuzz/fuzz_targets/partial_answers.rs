//! Answers of hook servers that change only what they name.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    wharf_criproxy::fuzz::partial_answer(bytes);
});
