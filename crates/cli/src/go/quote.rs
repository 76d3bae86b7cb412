/// Quotes `text` as Go's `%q` does: double quotes, backslash escapes, printable Unicode as it is.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        push_escaped(&mut quoted, c);
    }
    quoted.push('"');
    quoted
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

/// The standard library's notion of a printable character, which only `escape_debug` exposes.
/// It also escapes combining marks, which Go prints: both forms read back as the same text.
fn is_printable(c: char) -> bool {
    !c.is_whitespace() && c.escape_debug().len() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

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
