//! Reads the fields of a message one by one.

use crate::varint;

/// Maximum nesting of groups. No protocol nests them; hostile bytes might.
const MAX_GROUP_DEPTH: usize = 32;
/// Largest field number.
const MAX_FIELD_NUMBER: u64 = (1 << 29) - 1;

/// Why bytes are not a message, or not one that this crate accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The bytes end inside a field.
    #[error("the message ends inside a field, at byte {at}")]
    Truncated {
        /// Offset at which the field begins.
        at: usize,
    },
    /// A tag that encoders do not write.
    #[error("byte {at} of the message is not a field tag")]
    Tag {
        /// Offset of the tag.
        at: usize,
    },
    /// A group that is not closed, closed with another number, or nested too deep.
    #[error("the group at byte {at} of the message is not whole")]
    Group {
        /// Offset at which the group begins.
        at: usize,
    },
    /// More fields than the limit; each takes memory.
    #[error("the message has more than {most} fields")]
    Fields {
        /// The limit.
        most: usize,
    },
    /// A field of another type than the expected one.
    #[error("field {number} has the wrong type: expected {expected}")]
    Type {
        /// Number of the field.
        number: u32,
        /// The expected type.
        expected: &'static str,
    },
}

/// The content of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// An integer, a boolean or an enum.
    Varint(u64),
    /// Eight bytes.
    Fixed64([u8; 8]),
    /// A string, bytes, a message, a map entry or packed numbers.
    Bytes(&'a [u8]),
    /// A group, without its tags.
    Group(&'a [u8]),
    /// Four bytes.
    Fixed32([u8; 4]),
}

/// One occurrence of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Field number.
    pub number: u32,
    /// Content.
    pub value: Value<'a>,
    /// Tag and content, as received.
    pub raw: &'a [u8],
}

/// Iterates over the fields of a message.
pub fn fields(message: &[u8]) -> Fields<'_> {
    Fields { message, at: 0 }
}

/// Iterator over the fields of a message, in their order. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.message.len() {
            return None;
        }
        let field = read(self.message, self.at, 0);
        self.at = match &field {
            Ok((_, end)) => *end,
            Err(_) => self.message.len(),
        };
        Some(field.map(|(field, _)| field))
    }
}

/// Reads the field at `start`. Returns it and the offset of the next field.
fn read(message: &[u8], start: usize, depth: usize) -> Result<(Field<'_>, usize), WireError> {
    let truncated = WireError::Truncated { at: start };
    let (tag, length) = varint::read(&message[start..]).ok_or(truncated)?;
    let number = tag >> 3;
    if number == 0 || number > MAX_FIELD_NUMBER {
        return Err(WireError::Tag { at: start });
    }
    let number = number as u32;
    let at = start + length;
    let rest = &message[at..];
    let (value, length) = match tag & 7 {
        0 => {
            let (value, length) = varint::read(rest).ok_or(truncated)?;
            (Value::Varint(value), length)
        }
        1 => (Value::Fixed64(*rest.first_chunk().ok_or(truncated)?), 8),
        2 => {
            let (size, length) = varint::read(rest).ok_or(truncated)?;
            let size = usize::try_from(size).map_err(|_| truncated)?;
            let end = length.checked_add(size).ok_or(truncated)?;
            (Value::Bytes(rest.get(length..end).ok_or(truncated)?), end)
        }
        3 => {
            let (content, end) = group(message, at, number, start, depth)?;
            let field = Field { number, value: Value::Group(content), raw: &message[start..end] };
            return Ok((field, end));
        }
        5 => (Value::Fixed32(*rest.first_chunk().ok_or(truncated)?), 4),
        _ => return Err(WireError::Tag { at: start }),
    };
    let end = at + length;
    Ok((Field { number, value, raw: &message[start..end] }, end))
}

/// Reads the group whose content begins at `at`. Returns the content and the offset after the
/// group.
fn group(
    message: &[u8],
    mut at: usize,
    number: u32,
    start: usize,
    depth: usize,
) -> Result<(&[u8], usize), WireError> {
    let broken = WireError::Group { at: start };
    if depth >= MAX_GROUP_DEPTH {
        return Err(broken);
    }
    let content = at;
    loop {
        let (tag, length) = varint::read(&message[at..]).ok_or(broken)?;
        if tag & 7 == 4 {
            let same = tag >> 3 == u64::from(number);
            return if same { Ok((&message[content..at], at + length)) } else { Err(broken) };
        }
        (_, at) = read(message, at, depth + 1)?;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(message: &[u8]) -> Result<Vec<(u32, Value<'_>)>, WireError> {
        fields(message).map(|field| field.map(|field| (field.number, field.value))).collect()
    }

    #[test]
    fn every_type_is_read() {
        let message = [
            &[0x08, 0x96, 0x01][..],         // 1: varint 150
            &[0x11, 1, 2, 3, 4, 5, 6, 7, 8], // 2: fixed64
            &[0x1a, 2, b'h', b'i'],          // 3: "hi"
            &[0x23, 0x28, 1, 0x24],          // 4: group { 5: 1 }
            &[0x35, 1, 2, 3, 4],             // 6: fixed32
        ]
        .concat();
        let expected = vec![
            (1, Value::Varint(150)),
            (2, Value::Fixed64([1, 2, 3, 4, 5, 6, 7, 8])),
            (3, Value::Bytes(b"hi")),
            (4, Value::Group(&[0x28, 1])),
            (6, Value::Fixed32([1, 2, 3, 4])),
        ];
        assert_eq!(all(&message), Ok(expected));
    }

    #[test]
    fn broken_bytes_are_named() {
        let cases: [(&[u8], WireError); 7] = [
            (&[0x08], WireError::Truncated { at: 0 }),
            (&[0x08, 1, 0x1a, 5, b'h'], WireError::Truncated { at: 2 }),
            (
                &[0x1a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
                WireError::Truncated { at: 0 },
            ),
            (&[0x00, 1], WireError::Tag { at: 0 }),
            (&[0x0f], WireError::Tag { at: 0 }),
            (&[0x23, 0x28, 1], WireError::Group { at: 0 }),
            (&[0x23, 0x2c], WireError::Group { at: 0 }),
        ];
        for (bytes, error) in cases {
            assert_eq!(all(bytes), Err(error), "{bytes:?}");
        }
        assert!(all(&[0x0b; 100]).is_err(), "groups in groups");
    }

    proptest! {
        #[test]
        fn the_fields_are_the_message(bytes: Vec<u8>) {
            // For any bytes: no panic, and every byte belongs to exactly one field.
            if let Ok(read) = fields(&bytes).collect::<Result<Vec<_>, _>>() {
                let joined: Vec<u8> = read.iter().flat_map(|field| field.raw).copied().collect();
                prop_assert_eq!(joined, bytes);
            }
        }
    }
}
