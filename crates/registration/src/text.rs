//! Texts that reach logs, tables and peers stay readable, whatever a plugin sends.

/// The longest text that is passed on; a plugin may send a megabyte.
const LONGEST: usize = 1024;

/// `text`, cut at a character boundary where it is too long to be read by anyone.
pub(crate) fn readable(text: &str) -> String {
    if text.len() <= LONGEST {
        return text.to_owned();
    }
    let mut end = LONGEST;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}... ({} bytes more)", &text[..end], text.len() - end)
}

/// A list as Go's `%q` prints it, which is how it stands in the texts that people know.
pub(crate) fn go_list<T: AsRef<str>>(texts: &[T]) -> String {
    let quoted: Vec<_> = texts.iter().map(|text| format!("{:?}", text.as_ref())).collect();
    format!("[{}]", quoted.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(readable("short"), "short");
        let long = "ä".repeat(1000);
        assert_eq!(readable(&long), format!("{}... (976 bytes more)", "ä".repeat(512)));
    }
}
