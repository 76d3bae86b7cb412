//! Makes a driver name part of an object's name.

/// Replaces every character except letters, digits and dashes by a dash. Appends `X` if that is the
/// last one.
pub(crate) fn sanitised(name: &str) -> String {
    let mut sanitised: String =
        name.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '-' }).collect();
    if sanitised.ends_with('-') {
        sanitised.push('X');
    }
    sanitised
}

#[cfg(test)]
mod tests {
    use super::sanitised;

    #[test]
    fn only_letters_digits_and_dashes_are_left() {
        for (name, expected) in [
            ("csi.example.com", "csi-example-com"),
            ("csi.EXAMPLE-1.com", "csi-EXAMPLE-1-com"),
            ("a_b/c é", "a-b-c--X"),
            ("dash-", "dash-X"),
            ("dot.", "dot-X"),
        ] {
            assert_eq!(sanitised(name), expected, "{name}");
        }
    }
}
