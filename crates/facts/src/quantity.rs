//! Sizes as Kubernetes writes them.

/// Suffixes as Kubernetes has them, with their number of bytes.
const UNITS: [(&str, i64); 12] = [
    ("Ei", 1 << 60),
    ("Pi", 1 << 50),
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
    ("E", 1_000_000_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1_000),
];

/// How many of them are binary; sizes are shown in those.
const BINARY: usize = 6;

/// Bytes: 64Mi, 1Gi, 1G or a plain number.
///
/// # Errors
/// When it is none, or more than CSI can count; the text says what was expected.
pub fn parse(text: &str) -> Result<i64, String> {
    let (digits, unit) = UNITS
        .iter()
        .find_map(|(suffix, bytes)| Some((text.strip_suffix(suffix)?, *bytes)))
        .unwrap_or((text, 1));
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(
            "expected bytes, or a whole number with a unit, such as 64Mi, 1Gi or 1G".to_owned()
        );
    }
    digits
        .parse()
        .ok()
        .and_then(|count: i64| count.checked_mul(unit))
        .ok_or_else(|| "more bytes than CSI can count: the most is 8Ei - 1".to_owned())
}

/// Bytes as people say them: 1Gi, 1.5Gi, 300.
pub fn human(bytes: i64) -> String {
    for (suffix, unit) in &UNITS[..BINARY] {
        if bytes >= *unit {
            let (whole, rest) = (bytes / unit, bytes % unit);
            let tenths = i128::from(rest) * 10 / i128::from(*unit);
            return match (rest, tenths) {
                (0, _) => format!("{whole}{suffix}"),
                _ => format!("{whole}.{tenths}{suffix}"),
            };
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64Mi", 64 << 20),
            ("1Gi", 1 << 30),
            ("1G", 1_000_000_000),
            ("2k", 2000),
            ("7Ei", 7 << 60),
            ("9223372036854775807", i64::MAX),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "Gi", "-1", "+1", "1.5Gi", "1GiB", "1 Gi", "8Ei", "9223372036854775808"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_people_read() {
        for (bytes, text) in [
            (0, "0"),
            (1000, "1000"),
            (1 << 30, "1Gi"),
            (3 << 29, "1.5Gi"),
            (i64::MAX, "7.9Ei"),
            (-1, "-1"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }
}
