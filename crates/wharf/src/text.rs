use serde::Serialize;
use wharf_facts::text::is_plain;

/// The longest text that is shown: a driver may send a megabyte.
const LONGEST: usize = 4096;

/// Text that others chose, made safe for a terminal.
pub(crate) fn plain(text: &str) -> String {
    wharf_facts::text::plain(text, LONGEST)
}

/// JSON in several lines. Invisible characters that JSON allows are escaped as well: the output may
/// go to a terminal.
pub(crate) fn json(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(escaped(&serde_json::to_string_pretty(value)?))
}

/// JSON in one line, escaped in the same way.
pub(crate) fn json_line(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(escaped(&serde_json::to_string(value)?))
}

fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        if char == '\n' || is_plain(char) {
            shown.push(char);
            continue;
        }
        for unit in char.encode_utf16(&mut [0; 2]) {
            shown.push_str(&format!("\\u{unit:04x}"));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_letters_only_and_means_the_same() {
        let text = "a\u{9b}2Jb\u{7f}\u{202e}c\n\u{1b} ä \u{e0001}";
        let line = json_line(&[text]).unwrap();
        assert!(!line.contains('\n') && line.chars().all(is_plain), "{line}");
        let shown = json(&[text]).unwrap();
        let expected = "[\n  \"a\\u009b2Jb\\u007f\\u202ec\\n\\u001b ä \\udb40\\udc01\"\n]";
        assert_eq!(shown, expected);
        assert_eq!(serde_json::from_str::<[String; 1]>(&shown).unwrap(), [text]);
    }
}
