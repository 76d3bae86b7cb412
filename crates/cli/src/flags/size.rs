use super::{Dialect, FlagValue};

/// A number of bytes, in the notation of Kubernetes quantities: `512`, `64Ki`, `1.5M`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl FlagValue for ByteSize {
    const KIND: &'static str = "quantity";

    fn set(&mut self, text: &str, _: Dialect) -> Result<(), String> {
        self.0 = parse(text).ok_or("expected a number of bytes such as 512, 64Ki or 1.5M")?;
        Ok(())
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

fn parse(text: &str) -> Option<u64> {
    let ends = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(ends);
    let scale = scale(suffix)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.len() > MAX_DECIMALS {
        return None;
    }
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let divisor = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    // Rounded up to whole bytes, like quantities.
    u64::try_from(digits.checked_mul(scale)?.div_ceil(divisor)).ok()
}

/// With more decimals the result is less than a byte, even with the largest suffix.
const MAX_DECIMALS: usize = 18;

fn scale(suffix: &str) -> Option<u128> {
    let (base, letter) = match suffix.strip_suffix('i') {
        Some(letter) => (1024_u128, letter),
        None => (1000, suffix),
    };
    let power = match letter {
        "" if base == 1000 => 0,
        "k" | "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        "E" => 6,
        _ => return None,
    };
    Some(base.pow(power))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_quantities() {
        for (text, expected) in [
            ("0", Some(0)),
            ("512", Some(512)),
            ("1K", Some(1000)),
            ("1k", Some(1000)),
            ("2Ki", Some(2048)),
            ("1.5Mi", Some(1_572_864)),
            (".5k", Some(500)),
            ("0.1", Some(1)),
            ("4G", Some(4_000_000_000)),
            ("16E", Some(16_000_000_000_000_000_000)),
            ("16Ei", None),
            ("", None),
            (".", None),
            ("i", None),
            ("1i", None),
            ("-1", None),
            ("1.2.3", None),
            ("1 Ki", None),
            ("1kB", None),
        ] {
            assert_eq!(parse(text), expected, "{text:?}");
        }
    }
}
