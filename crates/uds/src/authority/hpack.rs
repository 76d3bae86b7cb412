//! Repair of an illegal `:authority` in an HPACK header block, in place.
//!
//! The value keeps its length, plain and coded: every illegal byte is replaced by a legal one whose
//! Huffman code is as long. So neither the block nor its entry in the dynamic table changes size,
//! and the tables of both ends stay equal without a copy here.

use std::ops::Range;

use http::uri::Authority;

use super::huffman;

const NAME: &[u8] = b":authority";
/// Its index in the static table.
const NAME_INDEX: usize = 1;

/// Repairs the first `:authority` literal of a header block, or of the part that one frame carries.
/// A block that cannot be parsed stays unchanged: h2 rejects it.
pub(crate) fn repair_block(block: &mut [u8]) {
    if let Some(value) = find_authority(block) {
        repair_value(&mut block[value.bytes], value.huffman);
    }
}

/// A string literal in a block.
struct Literal {
    bytes: Range<usize>,
    huffman: bool,
}

fn find_authority(block: &[u8]) -> Option<Literal> {
    let mut cursor = Cursor { block, at: 0 };
    loop {
        let index = match *block.get(cursor.at)? {
            0x80.. => {
                cursor.integer(7)?; // an indexed field
                continue;
            }
            0x40.. => cursor.integer(6)?, // a literal to be indexed
            0x20.. => {
                cursor.integer(5)?; // a new size of the dynamic table
                continue;
            }
            _ => cursor.integer(4)?, // a literal without or never indexed
        };
        let named = match index {
            0 => is_name(block, &cursor.literal()?),
            index => index == NAME_INDEX,
        };
        let value = cursor.literal()?;
        if named {
            return Some(value);
        }
    }
}

fn is_name(block: &[u8], literal: &Literal) -> bool {
    let bytes = &block[literal.bytes.clone()];
    match literal.huffman {
        false => bytes == NAME,
        // The shortest code has 5 bits: anything longer than the name itself is another name.
        true => bytes.len() <= NAME.len() && huffman::decode(bytes).is_some_and(|n| n == NAME),
    }
}

fn repair_value(bytes: &mut [u8], coded: bool) {
    let value = if coded { huffman::decode(bytes) } else { Some(bytes.to_vec()) };
    let Some(mut value) = value else { return };
    // An authority that the parser of h2 accepts is never changed.
    if Authority::try_from(value.as_slice()).is_ok() {
        return;
    }
    for byte in &mut value {
        *byte = legal(*byte);
    }
    if Authority::try_from(value.as_slice()).is_err() {
        return;
    }
    let repaired = if coded { huffman::encode(&value) } else { value };
    bytes.copy_from_slice(&repaired);
}

/// A legal byte with a Huffman code of the same length as that of `byte`. Other illegal bytes do
/// not occur: clients percent-encode them.
const fn legal(byte: u8) -> u8 {
    match byte {
        b'%' | b'/' | b' ' => b'-',
        b':' => b'x',
        b'@' | b'[' | b']' => b'~',
        b'?' | b'"' => b'!',
        b'|' => b'+',
        other => other,
    }
}

struct Cursor<'a> {
    block: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    /// An integer with `prefix` bits in its first byte (RFC 7541, 5.1).
    fn integer(&mut self, prefix: u32) -> Option<usize> {
        let most = (1usize << prefix) - 1;
        let mut value = usize::from(self.byte()?) & most;
        if value < most {
            return Some(value);
        }
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A string literal that lies wholly within the block (RFC 7541, 5.2).
    fn literal(&mut self) -> Option<Literal> {
        let huffman = self.block.get(self.at)? & 0x80 != 0;
        let length = self.integer(7)?;
        let bytes = self.at..self.at.checked_add(length)?;
        self.block.get(bytes.clone())?;
        self.at = bytes.end;
        Some(Literal { bytes, huffman })
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.block.get(self.at)?;
        self.at += 1;
        Some(byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIALLED: &[u8] = b"%2Ftmp%2Fx%2Fplugin.sock";
    const REPAIRED: &[u8] = b"-2Ftmp-2Fx-2Fplugin.sock";

    fn literal(string: &[u8], coded: bool) -> Vec<u8> {
        let bytes = if coded { huffman::encode(string) } else { string.to_vec() };
        let mut literal = vec![bytes.len() as u8 | if coded { 0x80 } else { 0 }];
        literal.extend(bytes);
        literal
    }

    /// `:method: POST`, a new table size, a literal with an indexed name, then the authority.
    fn block(head: &[u8], value: &[u8], coded: bool) -> Vec<u8> {
        let mut block = vec![0x83, 0x3f, 0xe1, 0x1f, 0x44];
        block.extend(literal(b"/a.B/C", coded));
        block.extend(head);
        block.extend(literal(value, coded));
        block.extend([0x86]);
        block
    }

    #[test]
    fn repairs_by_index_and_by_name_in_every_representation() {
        for coded in [false, true] {
            let named = |first: u8| [vec![first], literal(NAME, coded)].concat();
            for head in [vec![0x41], vec![0x01], vec![0x11], named(0x40), named(0), named(0x10)] {
                let mut bytes = block(&head, DIALLED, coded);
                repair_block(&mut bytes);
                assert_eq!(bytes, block(&head, REPAIRED, coded), "{head:x?} {coded}");
            }
        }
    }

    #[test]
    fn leaves_legal_authorities_and_other_headers() {
        for coded in [false, true] {
            for value in ["localhost", "host:8080", "user:pa%20ss@host", "[::1]:80"] {
                let before = block(&[0x41], value.as_bytes(), coded);
                let mut after = before.clone();
                repair_block(&mut after);
                assert_eq!(after, before, "{value}");
            }
            let other = [vec![0x40], literal(b"x-header", coded)].concat();
            let before = block(&other, DIALLED, coded);
            let mut after = before.clone();
            repair_block(&mut after);
            assert_eq!(after, before);
        }
    }

    #[test]
    fn repairs_what_clients_send() {
        for sent in ["/run/plugin.sock", "%2Fa:b:c%2F@[x].sock", "unix:/a/b", "a]b"] {
            let mut value = sent.as_bytes().to_vec();
            repair_value(&mut value, false);
            assert!(Authority::try_from(value.as_slice()).is_ok(), "{sent}");
            assert_eq!(value.len(), sent.len());
        }
    }

    #[test]
    fn replacements_have_codes_of_the_same_length() {
        for byte in 0..=255 {
            assert_eq!(huffman::bits(legal(byte)), huffman::bits(byte), "{byte:#x}");
        }
    }

    #[test]
    fn a_cut_block_is_left_alone() {
        let whole = block(&[0x41], DIALLED, true);
        for end in 0..whole.len() - 1 {
            let mut cut = whole[..end].to_vec();
            repair_block(&mut cut);
            assert_eq!(cut, whole[..end]);
        }
    }
}
