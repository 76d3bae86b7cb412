use thiserror::Error;

/// Why a text is not a number, with the messages of Go's `strconv`.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum NumberError {
    /// Not a number or boolean.
    #[error("invalid syntax")]
    Syntax,
    /// A number that does not fit.
    #[error("value out of range")]
    Range,
}

/// Parses a boolean in one of Go's spellings.
pub fn parse_bool(text: &str) -> Result<bool, NumberError> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(NumberError::Syntax),
    }
}

/// Parses a signed integer: prefixes `0x`, `0o`, `0b` and `0` (octal), underscores between digits.
pub fn parse_int(text: &str) -> Result<i64, NumberError> {
    let (negative, digits) = split_sign(text);
    let magnitude = parse_uint(digits)?;
    let value = if negative { -i128::from(magnitude) } else { i128::from(magnitude) };
    i64::try_from(value).map_err(|_| NumberError::Range)
}

/// Parses an unsigned integer, with the prefixes and underscores of [`parse_int`] but no sign.
pub fn parse_uint(text: &str) -> Result<u64, NumberError> {
    if text.is_empty() {
        return Err(NumberError::Syntax);
    }
    let (radix, digits) = split_radix(text);
    let mut value = 0_u64;
    for c in digits.chars().filter(|c| *c != '_') {
        let digit = c.to_digit(radix).ok_or(NumberError::Syntax)?;
        let shifted = value.checked_mul(u64::from(radix)).ok_or(NumberError::Range)?;
        value = shifted.checked_add(u64::from(digit)).ok_or(NumberError::Range)?;
    }
    if underscores_separate_digits(text) { Ok(value) } else { Err(NumberError::Syntax) }
}

/// Parses a decimal floating-point number. Rejects Go's hexadecimal floats (`0x1p-2`).
pub fn parse_float(text: &str) -> Result<f64, NumberError> {
    let mut plain = text.to_owned();
    if plain.contains('_') {
        let is_digit = |part: Option<char>| part.is_some_and(|c| c.is_ascii_digit());
        let parts: Vec<&str> = text.split('_').collect();
        let separate = parts
            .windows(2)
            .all(|pair| is_digit(pair[0].chars().next_back()) && is_digit(pair[1].chars().next()));
        if !separate {
            return Err(NumberError::Syntax);
        }
        plain = parts.concat();
    }
    let value: f64 = plain.parse().map_err(|_| NumberError::Syntax)?;
    if value.is_nan() && plain.starts_with(['+', '-']) {
        return Err(NumberError::Syntax);
    }
    let overflowed = value.is_infinite() && plain.bytes().any(|b| b.is_ascii_digit());
    if overflowed { Err(NumberError::Range) } else { Ok(value) }
}

fn split_sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

fn split_radix(text: &str) -> (u32, &str) {
    let Some(rest) = text.strip_prefix('0') else { return (10, text) };
    let mut digits = rest.chars();
    let radix = match digits.next() {
        Some('x' | 'X') => 16,
        Some('o' | 'O') => 8,
        Some('b' | 'B') => 2,
        // A single "0" is octal without further digits, which is zero.
        _ => return (8, rest),
    };
    // "0x" without digits is not a prefix: its letter is kept, and rejected as a digit.
    if digits.as_str().is_empty() { (8, rest) } else { (radix, digits.as_str()) }
}

/// Whether each underscore is between two digits; a radix prefix counts as a digit.
fn underscores_separate_digits(text: &str) -> bool {
    let (radix, digits) = split_radix(text);
    let mut previous_is_digit = digits.len() < text.len();
    for c in digits.chars() {
        if c == '_' && !previous_is_digit {
            return false;
        }
        previous_is_digit = c.is_digit(radix);
    }
    !digits.ends_with('_')
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNTAX: Result<i64, NumberError> = Err(NumberError::Syntax);
    const RANGE: Result<i64, NumberError> = Err(NumberError::Range);

    // Results of strconv.ParseInt(text, 0, 64) with Go 1.26.
    #[test]
    fn integers_as_go() {
        for (text, expected) in [
            ("0", Ok(0)),
            ("-0", Ok(0)),
            ("00", Ok(0)),
            ("1", Ok(1)),
            ("+7", Ok(7)),
            ("-12345", Ok(-12345)),
            ("98765432100", Ok(98_765_432_100)),
            ("9223372036854775807", Ok(i64::MAX)),
            ("9223372036854775808", RANGE),
            ("-9223372036854775808", Ok(i64::MIN)),
            ("-9223372036854775809", RANGE),
            ("99999999999999999999", RANGE),
            ("99999999999999999999x", RANGE),
            ("0x10", Ok(16)),
            ("0X1f", Ok(31)),
            ("-0x1F", Ok(-31)),
            ("0b101", Ok(5)),
            ("0B2", SYNTAX),
            ("0o17", Ok(15)),
            ("0O17", Ok(15)),
            ("017", Ok(15)),
            ("08", SYNTAX),
            ("0x", SYNTAX),
            ("0b", SYNTAX),
            ("0o", SYNTAX),
            ("0x_10", Ok(16)),
            ("0_7", Ok(7)),
            ("0_8", SYNTAX),
            ("1_000", Ok(1000)),
            ("1_0_0", Ok(100)),
            ("_1", SYNTAX),
            ("1_", SYNTAX),
            ("1__0", SYNTAX),
            ("0__7", SYNTAX),
            ("0x_", SYNTAX),
            ("0x1_", SYNTAX),
            ("-_1", SYNTAX),
            ("+-1", SYNTAX),
            ("--1", SYNTAX),
            ("-", SYNTAX),
            ("+", SYNTAX),
            ("", SYNTAX),
            (" 1", SYNTAX),
            ("1 ", SYNTAX),
            ("1.0", SYNTAX),
            ("1e3", SYNTAX),
            ("0xg", SYNTAX),
            ("１", SYNTAX),
            ("0_x10", SYNTAX),
        ] {
            assert_eq!(parse_int(text), expected, "{text:?}");
        }
    }

    #[test]
    fn unsigned_integers_have_no_sign() {
        for (text, expected) in [
            ("18446744073709551615", Ok(u64::MAX)),
            ("18446744073709551616", Err(NumberError::Range)),
            ("0xffffffffffffffff", Ok(u64::MAX)),
            ("-0", Err(NumberError::Syntax)),
            ("+7", Err(NumberError::Syntax)),
            ("0", Ok(0)),
        ] {
            assert_eq!(parse_uint(text), expected, "{text:?}");
        }
    }

    // Results of strconv.ParseFloat(text, 64) with Go 1.26.
    #[test]
    fn floats_as_go() {
        for (text, expected) in [
            ("1", Ok(1.0)),
            (".5", Ok(0.5)),
            ("5.", Ok(5.0)),
            ("-2e3", Ok(-2000.0)),
            ("1_0", Ok(10.0)),
            ("0.1e-400", Ok(0.0)),
            ("inf", Ok(f64::INFINITY)),
            ("+inf", Ok(f64::INFINITY)),
            ("1_000.5", Ok(1000.5)),
            ("1e1_0", Ok(1e10)),
            ("1_.5", Err(NumberError::Syntax)),
            ("+nan", Err(NumberError::Syntax)),
            ("1e999", Err(NumberError::Range)),
            ("-1e999", Err(NumberError::Range)),
            ("1_", Err(NumberError::Syntax)),
            ("_1", Err(NumberError::Syntax)),
            ("1__0", Err(NumberError::Syntax)),
            ("", Err(NumberError::Syntax)),
            ("1e", Err(NumberError::Syntax)),
            (".", Err(NumberError::Syntax)),
            ("1 ", Err(NumberError::Syntax)),
        ] {
            assert_eq!(parse_float(text), expected, "{text:?}");
        }
    }

    #[test]
    fn booleans_are_a_closed_set() {
        for text in ["1", "t", "T", "true", "TRUE", "True"] {
            assert_eq!(parse_bool(text), Ok(true));
        }
        for text in ["0", "f", "F", "false", "FALSE", "False"] {
            assert_eq!(parse_bool(text), Ok(false));
        }
        for text in ["", "yes", "on", "tRUE", "2", " true"] {
            assert_eq!(parse_bool(text), Err(NumberError::Syntax), "{text:?}");
        }
    }
}
