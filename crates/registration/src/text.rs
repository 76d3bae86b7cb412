//! Texts that reach logs, tables and peers stay readable, whatever a plugin sends.

use wharf_facts::text::plain;

/// The longest text that is passed on; a plugin may send a megabyte.
const LONGEST: usize = 1024;

/// `text` as it can be shown: bounded, and without characters that cannot be seen.
pub(crate) fn readable(text: &str) -> String {
    plain(text, LONGEST)
}

/// A list as Go's `%q` prints it, which is how it stands in the texts that people know.
pub(crate) fn go_list<T: AsRef<str>>(texts: &[T]) -> String {
    let quoted: Vec<_> = texts.iter().map(|text| format!("{:?}", text.as_ref())).collect();
    format!("[{}]", quoted.join(" "))
}
