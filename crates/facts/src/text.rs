//! How texts of others are shown in logs, in tables and to peers: whatever they hold, they move no cursor and fill no disk.

/// `text` with all characters that cannot be seen written out, cut between characters where it is longer than `longest` bytes.
#[must_use]
pub fn plain(text: &str, longest: usize) -> String {
    let end = text.floor_char_boundary(longest);
    let mut shown = String::with_capacity(end);
    for char in text[..end].chars() {
        match is_plain(char) {
            true => shown.push(char),
            false => shown.extend(char.escape_debug()),
        }
    }
    if end < text.len() {
        shown.push_str(&format!("... ({} bytes more)", text.len() - end));
    }
    shown
}

/// Whether a character can be seen, and changes nothing about the text around it.
#[must_use]
pub fn is_plain(char: char) -> bool {
    // Of those that can be seen the standard library escapes these alone.
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
        assert_eq!(plain("short", 5), "short");
        assert_eq!(plain("ääää", 5), "ää... (4 bytes more)");
    }
}
