//! Texts of strangers, cut to a length that people read.

use std::borrow::Cow;

/// `text`, cut between characters where it is longer than `longest` bytes.
pub(crate) fn cut(text: &str, longest: usize) -> Cow<'_, str> {
    if text.len() <= longest {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(longest);
    Cow::Owned(format!("{}... ({} bytes more)", &text[..end], text.len() - end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("ääää", 5), "ää... (4 bytes more)");
    }
}
