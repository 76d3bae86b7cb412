/// Quotes `text` like Go's `%q`: double quotes, backslash escapes, printable Unicode unchanged.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        push_escaped(&mut quoted, c);
    }
    quoted.push('"');
    quoted
}

/// Escapes characters with an effect on a terminal or on the text around them, like [`quote`]:
/// control characters including C1, direction marks and line separators. Quotes, backslashes and
/// tabs are kept.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' | '\t' => shown.push(c),
            c => push_escaped(&mut shown, c),
        }
    }
    shown
}

/// Escapes the same characters in JSON, where only strings can contain them; the value is the same.
pub fn visible_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    let mut units = [0; 2];
    for c in json.chars() {
        if c.is_ascii() && c != '\x7f' || is_printable(c) {
            shown.push(c);
        } else {
            for unit in c.encode_utf16(&mut units) {
                shown.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    shown
}

fn push_escaped(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\x07' => out.push_str("\\a"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\x0b' => out.push_str("\\v"),
        ' '..='~' => out.push(c),
        _ if is_printable(c) => out.push(c),
        '\0'..='\x7f' => out.push_str(&format!("\\x{:02x}", u32::from(c))),
        '\u{80}'..='\u{ffff}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
        _ => out.push_str(&format!("\\U{:08x}", u32::from(c))),
    }
}

/// Whether the standard library considers a character printable, which only `escape_debug` exposes.
/// It also escapes combining marks, which Go prints: both forms parse to the same text.
fn is_printable(c: char) -> bool {
    !c.is_whitespace() && c.escape_debug().len() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_act_on_is_shown() {
        let text = "a\"b\\c\td \x1b[31m\r\u{9b}2J\u{7f}\u{202e}\u{2028}größe";
        assert_eq!(
            visible(text),
            r#"a"b\c	d \x1b[31m\r\u009b2J\x7f\u202e\u2028größe"#.replace("\\\\", "\\")
        );
        let json = serde_json::Value::from(format!("{text}\u{e0001}")).to_string();
        let shown = visible_json(&json);
        assert!(shown.chars().all(|c| (' '..='~').contains(&c) || is_printable(c)), "{shown}");
        let read: String = serde_json::from_str(&shown).unwrap();
        assert_eq!(read, format!("{text}\u{e0001}"));
    }

    #[test]
    fn quotes_as_go() {
        for (text, expected) in [
            ("plain", r#""plain""#),
            ("", r#""""#),
            ("say \"hi\"", r#""say \"hi\"""#),
            ("a\\b", r#""a\\b""#),
            ("tab\tnl\ncr\r", r#""tab\tnl\ncr\r""#),
            ("\x07\x08\x0b\x0c\x1b\x7f\0", r#""\a\b\v\f\x1b\x7f\x00""#),
            ("größe 漢", r#""größe 漢""#),
            ("nbsp\u{a0}", r#""nbsp\u00a0""#),
            ("\u{200b}", r#""\u200b""#),
            ("\u{e0001}", r#""\U000e0001""#),
            ("it's", r#""it's""#),
        ] {
            assert_eq!(quote(text), expected, "{text:?}");
        }
    }
}
