//! Sizes in the notation of Kubernetes.

/// Kubernetes' suffixes, with their number of bytes.
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

/// The number of binary suffixes in [`UNITS`]; sizes are printed with those.
const BINARY: usize = 6;

/// Parses bytes: 64Mi, 1Gi, 1G or a plain number.
///
/// # Errors
/// The text is not such a size, or more than CSI can count; the error says what was expected.
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

/// Parses a quantity of the API, which may also have fractions and exponents: 1.5Gi, 1500m, 1e9.
/// Rounds up to whole bytes.
///
/// # Errors
/// The text is not a quantity, is negative, or is more than CSI can count.
pub fn parse_rounded_up(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text:?} is not a quantity of bytes, such as 1Gi");
    let end = text.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // More digits than any quantity of the API.
    if whole.len() + fraction.len() > 24
        || whole.len() + fraction.len() == 0
        || fraction.contains('.')
    {
        return Err(wrong());
    }
    let digits: u128 = format!("{whole}{fraction}").parse().map_err(|_| wrong())?;
    let mut tens = -i32::try_from(fraction.len()).map_err(|_| wrong())?;
    let mut unit = 1u128;
    match suffix {
        "" => {}
        "m" => tens -= 3,
        "u" => tens -= 6,
        "n" => tens -= 9,
        _ => match UNITS.iter().find(|(own, _)| *own == suffix) {
            Some((_, bytes)) => unit = bytes.unsigned_abs().into(),
            None => {
                let exponent = suffix.strip_prefix(['e', 'E']).ok_or_else(wrong)?;
                tens += exponent.parse::<i8>().map_err(|_| wrong())? as i32;
            }
        },
    }
    let power = 10u128.checked_pow(tens.unsigned_abs());
    let bytes = match (digits.checked_mul(unit), power) {
        (Some(bytes), Some(power)) if tens < 0 => Some(bytes.div_ceil(power)),
        (Some(bytes), Some(power)) => bytes.checked_mul(power),
        // Smaller than any fraction of a byte.
        (Some(bytes), None) if tens < 0 => Some(bytes.min(1)),
        _ => None,
    };
    bytes
        .and_then(|bytes| i64::try_from(bytes).ok())
        .ok_or_else(|| format!("{text:?} is more bytes than CSI can count: the most is 8Ei - 1"))
}

/// Bytes in the notation of the API: a whole number of the largest binary unit that divides them.
pub fn canonical(bytes: i64) -> String {
    let unit = UNITS[..BINARY].iter().find(|(_, unit)| bytes != 0 && bytes % unit == 0);
    match unit {
        Some((suffix, unit)) => format!("{}{suffix}", bytes / unit),
        None => bytes.to_string(),
    }
}

/// Bytes for people: 1Gi, 1.5Gi, 300.
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
    fn what_the_api_writes() {
        for (text, bytes) in [
            ("0", 0),
            ("1500m", 2),
            ("1n", 1),
            ("1.5Gi", 3 << 29),
            (".5Ki", 512),
            ("1e9", 1_000_000_000),
            ("1E", 1_000_000_000_000_000_000),
            ("12E-1", 2),
            ("1e-100", 1),
            ("7Ei", 7 << 60),
        ] {
            assert_eq!(parse_rounded_up(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "Gi", "-1", "1.5.5", "1GiB", "8Ei", "1e30", "1e99999", "1ee", "."] {
            assert!(parse_rounded_up(wrong).is_err(), "{wrong}");
        }
        for (bytes, text) in [(0, "0"), (1 << 30, "1Gi"), (3 << 29, "1536Mi"), (1000, "1000")] {
            assert_eq!(canonical(bytes), text);
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
