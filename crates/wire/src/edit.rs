//! A message that can be changed field by field.
//!
//! A [`Message`] is the list of its fields, with their original bytes. An unchanged field is
//! written with these bytes, even if an encoder would write it differently today. A changed field
//! stays in place; a new one is appended. Setting a field to the value that it has changes nothing.

use bytes::Bytes;

use crate::{
    field::{Field, Value, WireError, fields},
    varint,
};

/// Maximum number of fields of a message at one level. A field takes some 80 bytes here and as
/// little as two on the wire, so a message of a few megabytes could exhaust memory. A container has
/// at most some thousand fields.
const MAX_FIELDS: usize = 1 << 17;

/// The fields of a message, in their order.
#[derive(Clone, Debug, Default)]
pub struct Message {
    original: Bytes,
    pieces: Vec<Piece>,
    changed: bool,
}

#[derive(Clone, Debug)]
enum Piece {
    /// One occurrence of a field.
    Field { number: u32, raw: Bytes, content: Content },
    /// A message that was opened, at its first occurrence, with that occurrence's original bytes.
    Open { number: u32, raw: Bytes, message: Box<Message> },
    /// A later occurrence of that message; its content is in `Open`.
    Rest { number: u32, raw: Bytes },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Varint(u64),
    Bytes(Bytes),
    Other,
}

impl Message {
    /// Parses a message, one level deep.
    ///
    /// # Errors
    /// If the bytes are not a message, or it has too many fields.
    pub fn parse(original: Bytes) -> Result<Self, WireError> {
        let mut pieces = Vec::new();
        for field in fields(&original) {
            if pieces.len() == MAX_FIELDS {
                return Err(WireError::Fields { most: MAX_FIELDS });
            }
            pieces.push(Piece::of(&original, &field?));
        }
        Ok(Self { original, pieces, changed: false })
    }

    /// Whether a field was changed, here or in an opened message.
    pub fn is_changed(&self) -> bool {
        let opened =
            |piece: &Piece| matches!(piece, Piece::Open { message, .. } if message.is_changed());
        self.changed || self.pieces.iter().any(opened)
    }

    /// Encodes the message. An unchanged message keeps its original bytes.
    pub fn encode(&self) -> Bytes {
        if !self.is_changed() {
            return self.original.clone();
        }
        // Collect the few opened messages first: a message may come in any number of pieces, and a
        // search per piece is quadratic.
        let changed = |piece: &Piece| match piece {
            Piece::Open { number, message, .. } => message.is_changed().then_some(*number),
            Piece::Field { .. } | Piece::Rest { .. } => None,
        };
        let rewritten: Vec<u32> = self.pieces.iter().filter_map(changed).collect();
        let mut bytes = Vec::with_capacity(self.original.len() + 64);
        for piece in &self.pieces {
            match piece {
                Piece::Open { number, message, .. } if rewritten.contains(number) => {
                    bytes_field(*number, &message.encode(), &mut bytes);
                }
                Piece::Rest { number, .. } if rewritten.contains(number) => {}
                Piece::Field { raw, .. } | Piece::Open { raw, .. } | Piece::Rest { raw, .. } => {
                    bytes.extend_from_slice(raw);
                }
            }
        }
        bytes.into()
    }

    /// Returns an integer, boolean or enum; the last occurrence counts.
    ///
    /// # Errors
    /// If the field has another type.
    pub fn varint(&self, number: u32) -> Result<Option<u64>, WireError> {
        match self.last(number) {
            None => Ok(None),
            Some(Content::Varint(value)) => Ok(Some(*value)),
            Some(_) => Err(WireError::Type { number, expected: "a number" }),
        }
    }

    /// Returns a string or bytes; the last occurrence counts.
    ///
    /// # Errors
    /// If the field has another type.
    pub fn bytes(&self, number: u32) -> Result<Option<Bytes>, WireError> {
        match self.last(number) {
            None => Ok(None),
            Some(Content::Bytes(value)) => Ok(Some(value.clone())),
            Some(_) => Err(WireError::Type { number, expected: "bytes" }),
        }
    }

    /// Returns every occurrence of a repeated string, bytes or message, in their order.
    ///
    /// # Errors
    /// If an occurrence has another type.
    pub fn all(&self, number: u32) -> Result<Vec<Bytes>, WireError> {
        let of = |piece: &Piece| match piece {
            Piece::Field { number: own, content: Content::Bytes(value), .. } if *own == number => {
                Some(Ok(value.clone()))
            }
            Piece::Field { number: own, .. } if *own == number => {
                Some(Err(WireError::Type { number, expected: "bytes" }))
            }
            Piece::Open { number: own, message, .. } if *own == number => {
                Some(Ok(message.encode()))
            }
            _ => None,
        };
        self.pieces.iter().filter_map(of).collect()
    }

    /// Sets a number. Zero, the default value, removes the field.
    pub fn set_varint(&mut self, number: u32, value: u64) {
        if value == 0 {
            self.clear(number);
        } else if self.varint(number) != Ok(Some(value)) {
            let mut raw = Vec::new();
            varint::write(u64::from(number) << 3, &mut raw);
            varint::write(value, &mut raw);
            self.set(
                number,
                vec![Piece::Field { number, raw: raw.into(), content: Content::Varint(value) }],
            );
        }
    }

    /// Sets a string or bytes. An empty value, the default, removes the field.
    pub fn set_bytes(&mut self, number: u32, value: &[u8]) {
        if value.is_empty() {
            self.clear(number);
        } else if self.bytes(number).ok().flatten().as_deref() != Some(value) {
            self.set(number, vec![Piece::bytes(number, value)]);
        }
    }

    /// Sets a repeated field of strings, bytes or messages.
    pub fn set_all(&mut self, number: u32, values: &[Bytes]) {
        if self.all(number).as_deref() != Ok(values) {
            self.set(number, values.iter().map(|value| Piece::bytes(number, value)).collect());
        }
    }

    /// Removes every occurrence of a field.
    pub fn clear(&mut self, number: u32) {
        let before = self.pieces.len();
        self.pieces.retain(|piece| piece.number() != number);
        self.changed |= self.pieces.len() != before;
    }

    /// Opens an embedded message to read or change it. A message that came in several pieces is
    /// merged. An absent one is empty, and is written only if a field is set in it.
    ///
    /// # Errors
    /// If the field is not a message.
    pub fn open(&mut self, number: u32) -> Result<&mut Self, WireError> {
        if self.opened(number).is_none() {
            self.merge(number)?;
        }
        let opened = self.pieces.iter_mut().find_map(|piece| match piece {
            Piece::Open { number: own, message, .. } if *own == number => Some(message.as_mut()),
            _ => None,
        });
        opened.ok_or(WireError::Type { number, expected: "a message" })
    }

    /// Returns the entries of a map from strings to strings or bytes. A key may appear twice; its
    /// last entry counts.
    ///
    /// # Errors
    /// If the field is not such a map.
    pub fn map(&self, number: u32) -> Result<Vec<(Bytes, Bytes)>, WireError> {
        self.all(number)?.iter().map(entry).collect()
    }

    fn last(&self, number: u32) -> Option<&Content> {
        self.pieces.iter().rev().find_map(|piece| match piece {
            Piece::Field { number: own, content, .. } if *own == number => Some(content),
            _ => None,
        })
    }

    fn opened(&self, number: u32) -> Option<&Self> {
        self.pieces.iter().find_map(|piece| match piece {
            Piece::Open { number: own, message, .. } if *own == number => Some(message.as_ref()),
            _ => None,
        })
    }

    /// Replaces all occurrences of a field by `pieces`, at the place of the first.
    fn set(&mut self, number: u32, pieces: Vec<Piece>) {
        let at = self.pieces.iter().position(|piece| piece.number() == number);
        self.pieces.retain(|piece| piece.number() != number);
        let at = at.unwrap_or(self.pieces.len());
        self.pieces.splice(at..at, pieces);
        self.changed = true;
    }

    /// Merges all occurrences of a field into one opened message.
    fn merge(&mut self, number: u32) -> Result<(), WireError> {
        let parts = self.all(number)?;
        let content = match parts.as_slice() {
            [one] => one.clone(),
            several => Bytes::from(several.concat()),
        };
        let message = Box::new(Self::parse(content)?);
        if parts.is_empty() {
            self.pieces.push(Piece::Open { number, raw: Bytes::new(), message });
            return Ok(());
        }
        let mut message = Some(message);
        for piece in self.pieces.iter_mut().filter(|piece| piece.number() == number) {
            let raw = piece.raw().clone();
            *piece = match message.take() {
                Some(message) => Piece::Open { number, raw, message },
                None => Piece::Rest { number, raw },
            };
        }
        Ok(())
    }
}

impl Piece {
    fn of(original: &Bytes, field: &Field<'_>) -> Self {
        let content = match field.value {
            Value::Varint(value) => Content::Varint(value),
            Value::Bytes(value) => Content::Bytes(original.slice_ref(value)),
            Value::Fixed32(_) | Value::Fixed64(_) | Value::Group(_) => Content::Other,
        };
        Self::Field { number: field.number, raw: original.slice_ref(field.raw), content }
    }

    fn bytes(number: u32, value: &[u8]) -> Self {
        let mut raw = Vec::with_capacity(value.len() + 8);
        bytes_field(number, value, &mut raw);
        let raw = Bytes::from(raw);
        let content = Content::Bytes(raw.slice(raw.len() - value.len()..));
        Self::Field { number, raw, content }
    }

    fn number(&self) -> u32 {
        match self {
            Self::Field { number, .. } | Self::Open { number, .. } | Self::Rest { number, .. } => {
                *number
            }
        }
    }

    fn raw(&self) -> &Bytes {
        match self {
            Self::Field { raw, .. } | Self::Open { raw, .. } | Self::Rest { raw, .. } => raw,
        }
    }
}

fn bytes_field(number: u32, value: &[u8], to: &mut Vec<u8>) {
    varint::write(u64::from(number) << 3 | 2, to);
    varint::write(value.len() as u64, to);
    to.extend_from_slice(value);
}

/// Parses a map entry: key in field 1, value in field 2, each empty if absent.
fn entry(bytes: &Bytes) -> Result<(Bytes, Bytes), WireError> {
    let [key, value] = last_bytes(bytes, [1, 2])?;
    Ok((key.unwrap_or_default(), value.unwrap_or_default()))
}

/// Returns the last occurrence of each of a few strings, without a limit on the number of fields,
/// since none are kept.
///
/// # Errors
/// If the bytes are not a message, or one of these fields has another type.
pub fn last_bytes<const N: usize>(
    message: &Bytes,
    numbers: [u32; N],
) -> Result<[Option<Bytes>; N], WireError> {
    let mut found = [const { None }; N];
    for field in fields(message) {
        let field = field?;
        if let Some(at) = numbers.iter().position(|number| *number == field.number) {
            found[at] = Some(field.value);
        }
    }
    let mut read = [const { None }; N];
    for ((to, value), number) in read.iter_mut().zip(found).zip(numbers) {
        *to = match value {
            None => None,
            Some(Value::Bytes(value)) => Some(message.slice_ref(value)),
            Some(_) => return Err(WireError::Type { number, expected: "bytes" }),
        };
    }
    Ok(read)
}

#[cfg(test)]
mod tests;
