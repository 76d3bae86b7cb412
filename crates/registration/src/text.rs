//! Makes texts of plugins safe for logs, tables and peers.

use wharf_facts::text::plain;

/// The longest text that is passed on, in characters; a plugin may send a megabyte.
const LONGEST: usize = 1024;

/// `text`, shortened to [`LONGEST`], without invisible characters.
pub(crate) fn readable(text: &str) -> String {
    plain(text, LONGEST)
}

/// A list as Go's `%q` prints it, since the kubelet's texts contain it.
pub(crate) fn go_list<T: AsRef<str>>(texts: &[T]) -> String {
    let quoted: Vec<_> = texts.iter().map(|text| format!("{:?}", text.as_ref())).collect();
    format!("[{}]", quoted.join(" "))
}
