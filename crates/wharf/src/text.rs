/// The longest text that is shown to a person; a driver may send a megabyte.
const LONGEST: usize = 4096;

/// Somebody else's text for a terminal: bounded, and with control characters written out, so that it cannot move the cursor.
pub(crate) fn plain(text: &str) -> String {
    let mut shown = String::new();
    for (index, char) in text.chars().enumerate() {
        if index == LONGEST {
            shown.push_str("...");
            break;
        }
        match char {
            '\n' => shown.push_str("\\n"),
            char if char.is_control() => shown.extend(char.escape_default()),
            char => shown.push(char),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_but_letters() {
        assert_eq!(plain("a\x1b[2Jb\nc ä"), "a\\u{1b}[2Jb\\nc ä");
        assert_eq!(plain(&"x".repeat(5000)).len(), LONGEST + 3);
    }
}
