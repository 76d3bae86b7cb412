/// The longest text that is shown to a person; a driver may send a megabyte.
const LONGEST: usize = 4096;

/// Somebody else's text for a terminal: bounded, and with control characters written out, so that it can neither move the
/// cursor nor show letters in another order than they are in.
pub(crate) fn plain(text: &str) -> String {
    let mut shown = String::new();
    for (index, char) in text.chars().enumerate() {
        if index == LONGEST {
            shown.push_str("...");
            break;
        }
        match char {
            '\n' => shown.push_str("\\n"),
            char if char.is_control() || turns_text(char) => shown.extend(char.escape_default()),
            char => shown.push(char),
        }
    }
    shown
}

/// Whether a character changes the direction of the text around it.
fn turns_text(char: char) -> bool {
    matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_but_letters() {
        assert_eq!(plain("a\x1b[2Jb\nc ä"), "a\\u{1b}[2Jb\\nc ä");
        assert_eq!(plain("a\u{202e}b\u{2066}c"), "a\\u{202e}b\\u{2066}c");
        assert_eq!(plain(&"x".repeat(5000)).len(), LONGEST + 3);
    }
}
