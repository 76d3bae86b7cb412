//! Names of files as text. No I/O.
//!
//! Every file has a text of its own, and every text leads back to its file: a byte that is not part
//! of UTF-8 is written as `\xff`, and a backslash as `\x5c`.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

/// The name of a file as text.
pub(super) fn escape(name: &OsStr) -> String {
    let mut text = String::new();
    for chunk in name.as_bytes().utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', r"\x5c"));
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!(r"\x{byte:02x}")));
    }
    text
}

/// The name of the file that [`escape`] made this text of.
pub(super) fn unescape(text: &str) -> OsString {
    let mut parts = text.split(r"\x");
    let mut name = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            Some(byte) => {
                name.push(byte);
                name.extend_from_slice(&part.as_bytes()[2..]);
            }
            None => name.extend_from_slice(&[br"\x", part.as_bytes()].concat()),
        }
    }
    OsString::from_vec(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_text_of_its_own_that_leads_back() {
        for (name, text) in [
            (&b"a.json"[..], "a.json"),
            ("ü.json".as_bytes(), "ü.json"),
            (b"\xfe.json", r"\xfe.json"),
            (b"a\xff\xfe.json", r"a\xff\xfe.json"),
            (br"\xff.json", r"\x5cxff.json"),
            (br"a\b.json", r"a\x5cb.json"),
            ("\u{fffd}.json".as_bytes(), "\u{fffd}.json"),
        ] {
            let name = OsStr::from_bytes(name);
            assert_eq!(escape(name), text);
            assert_eq!(unescape(text), name, "{text}");
        }
    }
}
