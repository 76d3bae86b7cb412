//! Times and IDs in readable form.

/// Characters shown of an ID, as in crictl.
const SHORT_ID: usize = 13;

/// Formats microseconds as milliseconds, or as seconds from 10 s on.
pub(super) fn milliseconds(micros: u64) -> String {
    match micros {
        0..10_000_000 => format!("{}.{}ms", micros / 1000, micros % 1000 / 100),
        _ => format!("{}.{}s", micros / 1_000_000, micros % 1_000_000 / 100_000),
    }
}

/// The beginning of an ID, which is enough to identify it.
pub(super) fn short_id(id: &str) -> &str {
    &id[..id.floor_char_boundary(SHORT_ID)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let shown = [0, 99, 1_250, 9_999_999, 10_000_000, 61_550_000].map(milliseconds);
        assert_eq!(shown, ["0.0ms", "0.0ms", "1.2ms", "9999.9ms", "10.0s", "61.5s"]);
    }

    #[test]
    fn ids_are_cut_between_characters() {
        assert_eq!(short_id(&"a".repeat(64)), "a".repeat(13));
        assert_eq!((short_id("id-1"), short_id("123456789012ä")), ("id-1", "123456789012"));
    }
}
