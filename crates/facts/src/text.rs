//! Makes foreign texts safe for logs, tables and peers: no control characters, bounded length.

use std::borrow::Cow;

/// Shortens `text` to at most `longest` bytes, between characters, and appends the number of bytes
/// cut.
#[must_use]
pub fn cut(text: &str, longest: usize) -> Cow<'_, str> {
    if text.len() <= longest {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(longest);
    Cow::Owned(format!("{}... ({} bytes more)", &text[..end], text.len() - end))
}

/// Shortens `text` as [`cut`] does, and escapes every character that [`is_plain`] rejects.
#[must_use]
pub fn plain(text: &str, longest: usize) -> String {
    let text = cut(text, longest);
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match is_plain(char) {
            true => shown.push(char),
            false => shown.extend(char.escape_debug()),
        }
    }
    shown
}

/// Whether a character is visible and has no effect on the text around it.
#[must_use]
pub fn is_plain(char: char) -> bool {
    // The standard library also escapes these three visible characters.
    matches!(char, '\'' | '"' | '\\') || char.escape_debug().len() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_letters_is_left() {
        let shown = plain("a\x1b[2Jb\nc ä 'd' \"e\" \\f \u{9b}g\u{202e}h\u{2066}\u{7f}", 100);
        let expected = "a\\u{1b}[2Jb\\nc ä 'd' \"e\" \\f \\u{9b}g\\u{202e}h\\u{2066}\\u{7f}";
        assert_eq!(shown, expected);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        for shortened in [plain("ääää", 5), cut("ääää", 5).into_owned()] {
            assert_eq!(shortened, "ää... (4 bytes more)");
        }
        assert_eq!((plain("short", 5).as_str(), cut("short", 5).as_ref()), ("short", "short"));
    }
}
