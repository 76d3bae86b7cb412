use thiserror::Error;

use super::quote;

/// Why a text is not a duration, with the messages of Go's `time` package.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DurationError {
    /// Not a duration, or one of more than 292 years.
    #[error("time: invalid duration {}", quote(.0))]
    Invalid(String),
    /// A number without a unit.
    #[error("time: missing unit in duration {}", quote(.0))]
    MissingUnit(String),
    /// A unit that is not one of ns, us, ms, s, m, h.
    #[error("time: unknown unit {} in duration {}", quote(unit), quote(text))]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The whole duration.
        text: String,
    },
}

/// Parses a duration such as `1m30s`, `.5h`, `-2ms` or `0` into nanoseconds.
pub fn parse_duration(text: &str) -> Result<i64, DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let (term, after) = parse_term(rest, text)?;
        total = total.checked_add(term).filter(|sum| *sum <= LIMIT).ok_or_else(invalid)?;
        rest = after;
    }
    match (negative, i64::try_from(total)) {
        (false, Ok(nanos)) => Ok(nanos),
        (false, Err(_)) => Err(invalid()),
        (true, Ok(nanos)) => Ok(-nanos),
        // Only [`LIMIT`] itself does not fit: its negative is the smallest duration.
        (true, Err(_)) => Ok(i64::MIN),
    }
}

/// Writes nanoseconds in Go's notation: `1m30s`, `500ms`, `0s`.
pub fn format_duration(nanos: i64) -> String {
    let magnitude = nanos.unsigned_abs();
    let mut text = String::from(if nanos < 0 { "-" } else { "" });
    if magnitude < SECOND {
        let (unit, name) = match magnitude {
            0 => (1, "s"),
            1..MICROSECOND => (1, "ns"),
            MICROSECOND..MILLISECOND => (MICROSECOND, "µs"),
            _ => (MILLISECOND, "ms"),
        };
        return text + &decimal(magnitude, unit) + name;
    }
    let (hours, minutes) = (magnitude / HOUR, magnitude / MINUTE % 60);
    if hours > 0 {
        text.push_str(&format!("{hours}h"));
    }
    if hours > 0 || minutes > 0 {
        text.push_str(&format!("{minutes}m"));
    }
    text + &decimal(magnitude % MINUTE, SECOND) + "s"
}

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000 * MICROSECOND;
const SECOND: u64 = 1_000 * MILLISECOND;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// The largest magnitude: that of the smallest negative duration.
const LIMIT: u64 = 1 << 63;

/// Parses one number with its unit; returns its nanoseconds and the rest of the text.
fn parse_term<'a>(rest: &'a str, text: &str) -> Result<(u64, &'a str), DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (whole, rest) = split_digits(rest);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => split_digits(rest),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(invalid());
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
    if whole > LIMIT {
        return Err(invalid());
    }
    let unit_ends = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_ends);
    if unit.is_empty() {
        return Err(DurationError::MissingUnit(text.to_owned()));
    }
    let scale = unit_nanos(unit).ok_or_else(|| DurationError::UnknownUnit {
        unit: unit.to_owned(),
        text: text.to_owned(),
    })?;
    let nanos = whole.checked_mul(scale).filter(|nanos| *nanos <= LIMIT).ok_or_else(invalid)?;
    let nanos = nanos.saturating_add(fraction_nanos(fraction, scale));
    Ok((nanos, rest))
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn unit_nanos(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        // Both code points for micro: U+00B5 and U+03BC.
        "us" | "\u{b5}s" | "\u{3bc}s" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => return None,
    })
}

/// A decimal fraction of `scale`, rounded down to whole nanoseconds.
///
/// Computed in floating point like in Go, so that every text gives the same nanosecond; digits
/// beyond 63 bits are ignored.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn fraction_nanos(digits: &str, scale: u64) -> u64 {
    let (mut value, mut divisor) = (0_u64, 1.0_f64);
    for digit in digits.bytes().map(|b| u64::from(b - b'0')) {
        let Some(next) = value.checked_mul(10).and_then(|value| value.checked_add(digit)) else {
            break;
        };
        if next > LIMIT {
            break;
        }
        value = next;
        divisor *= 10.0;
    }
    (value as f64 * (scale as f64 / divisor)) as u64
}

/// `value / unit` with the decimals that it needs.
fn decimal(value: u64, unit: u64) -> String {
    let (whole, mut fraction) = (value / unit, value % unit);
    if fraction == 0 {
        return whole.to_string();
    }
    let mut width = unit.ilog10() as usize;
    while fraction % 10 == 0 {
        fraction /= 10;
        width -= 1;
    }
    format!("{whole}.{fraction:0width$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Results of time.ParseDuration and Duration.String with Go 1.26.
    #[test]
    fn durations_as_go() {
        for (text, nanos, shown) in [
            ("0", 0, "0s"),
            ("+0", 0, "0s"),
            ("-0", 0, "0s"),
            ("5s", 5_000_000_000, "5s"),
            ("30s", 30_000_000_000, "30s"),
            ("1478s", 1_478_000_000_000, "24m38s"),
            ("-5s", -5_000_000_000, "-5s"),
            ("+5s", 5_000_000_000, "5s"),
            ("5.0s", 5_000_000_000, "5s"),
            ("5.6s", 5_600_000_000, "5.6s"),
            ("5.s", 5_000_000_000, "5s"),
            (".5s", 500_000_000, "500ms"),
            ("1.0s", 1_000_000_000, "1s"),
            ("1.00s", 1_000_000_000, "1s"),
            ("1.004s", 1_004_000_000, "1.004s"),
            ("1.0040s", 1_004_000_000, "1.004s"),
            ("100.00100s", 100_001_000_000, "1m40.001s"),
            ("10ns", 10, "10ns"),
            ("11us", 11_000, "11µs"),
            ("12µs", 12_000, "12µs"),
            ("12μs", 12_000, "12µs"),
            ("13ms", 13_000_000, "13ms"),
            ("14s", 14_000_000_000, "14s"),
            ("15m", 900_000_000_000, "15m0s"),
            ("16h", 57_600_000_000_000, "16h0m0s"),
            ("3h30m", 12_600_000_000_000, "3h30m0s"),
            ("10.5s4m", 250_500_000_000, "4m10.5s"),
            ("-2m3.4s", -123_400_000_000, "-2m3.4s"),
            ("1h2m3s4ms5us6ns", 3_723_004_005_006, "1h2m3.004005006s"),
            ("39h9m14.425s", 140_954_425_000_000, "39h9m14.425s"),
            ("52763797000ns", 52_763_797_000, "52.763797s"),
            ("0.3333333333333333333h", 1_200_000_000_000, "20m0s"),
            ("9007199254740993ns", 9_007_199_254_740_993, "2501h59m59.254740993s"),
            ("9223372036854775807ns", i64::MAX, "2562047h47m16.854775807s"),
            ("9223372036854775.807us", i64::MAX, "2562047h47m16.854775807s"),
            ("9223372036s854ms775us807ns", i64::MAX, "2562047h47m16.854775807s"),
            ("-9223372036854775808ns", i64::MIN, "-2562047h47m16.854775808s"),
            ("-9223372036854775.808us", i64::MIN, "-2562047h47m16.854775808s"),
            ("-9223372036s854ms775us808ns", i64::MIN, "-2562047h47m16.854775808s"),
            ("-2562047h47m16.854775808s", i64::MIN, "-2562047h47m16.854775808s"),
            ("0.100000000000000000000h", 360_000_000_000, "6m0s"),
            ("0.830103483285477580700h", 2_988_372_539_827, "49m48.372539827s"),
            ("1m0.000000001s", 60_000_000_001, "1m0.000000001s"),
            ("150s", 150_000_000_000, "2m30s"),
            ("500ms", 500_000_000, "500ms"),
            ("0s", 0, "0s"),
        ] {
            assert_eq!(parse_duration(text), Ok(nanos), "{text:?}");
            assert_eq!(format_duration(nanos), shown, "{text:?}");
        }
    }

    #[test]
    fn refusals_as_go() {
        for (text, expected) in [
            ("", r#"time: invalid duration """#),
            ("3", r#"time: missing unit in duration "3""#),
            ("-", r#"time: invalid duration "-""#),
            ("s", r#"time: invalid duration "s""#),
            (".", r#"time: invalid duration ".""#),
            ("-.", r#"time: invalid duration "-.""#),
            ("s5", r#"time: invalid duration "s5""#),
            (".s", r#"time: invalid duration ".s""#),
            ("+.s", r#"time: invalid duration "+.s""#),
            ("1d", r#"time: unknown unit "d" in duration "1d""#),
            ("1e3s", r#"time: unknown unit "e" in duration "1e3s""#),
            ("1s ", r#"time: unknown unit "s " in duration "1s ""#),
            ("9223372036854775810ns", r#"time: invalid duration "9223372036854775810ns""#),
            ("9223372036854775808ns", r#"time: invalid duration "9223372036854775808ns""#),
            ("-9223372036854775809ns", r#"time: invalid duration "-9223372036854775809ns""#),
            ("9223372036854775.808us", r#"time: invalid duration "9223372036854775.808us""#),
            ("3000000h", r#"time: invalid duration "3000000h""#),
            ("9999999999999999999999x", r#"time: invalid duration "9999999999999999999999x""#),
            ("18446744073709551616ns", r#"time: invalid duration "18446744073709551616ns""#),
            (r#"1h""#, r#"time: unknown unit "h\"" in duration "1h\"""#),
            ("0.5", r#"time: missing unit in duration "0.5""#),
            ("1.1.1s", r#"time: missing unit in duration "1.1.1s""#),
            ("1y2s", r#"time: unknown unit "y" in duration "1y2s""#),
        ] {
            let error = parse_duration(text).map_err(|error| error.to_string());
            assert_eq!(error, Err(expected.to_owned()), "{text:?}");
        }
    }
}
