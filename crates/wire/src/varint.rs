//! Integers of variable length.

/// The longest encoding of 64 bits.
const MAX_LENGTH: usize = 10;

/// Reads the number at the start of `bytes`. Returns it and its length; `None` if the bytes end too
/// soon or hold more than 64 bits.
pub(crate) fn read(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().take(MAX_LENGTH).enumerate() {
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has room for one bit.
        if index == MAX_LENGTH - 1 && bits > 1 {
            return None;
        }
        value |= bits << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

/// Appends a number.
pub(crate) fn write(mut value: u64, to: &mut Vec<u8>) {
    while value >= 0x80 {
        to.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_are_read_back(value: u64, rest: Vec<u8>) {
            let mut bytes = Vec::new();
            write(value, &mut bytes);
            let taken = bytes.len();
            bytes.extend(rest);
            prop_assert_eq!(read(&bytes), Some((value, taken)));
        }
    }

    #[test]
    fn what_ends_too_soon_or_is_too_long_is_refused() {
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[0x80]), None);
        assert_eq!(read(&[0xff; 9]), None);
        assert_eq!(read(&[0x80; 11]), None);
        let mut largest = [0xff; 10];
        largest[9] = 0x01;
        assert_eq!(read(&largest), Some((u64::MAX, 10)));
        largest[9] = 0x02;
        assert_eq!(read(&largest), None);
    }
}
