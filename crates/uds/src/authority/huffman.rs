//! The Huffman code of HPACK (RFC 7541, appendix B).
//!
//! The code is canonical: codes of one length count up in the order of their symbols, and the first
//! of a length continues after the last of the length before. So the lengths define the code.

/// Bits per symbol.
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

const SHORTEST: usize = 5;
const LONGEST: usize = 30;

/// Decodes a string; `None` if it is invalid.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut symbols = Vec::with_capacity(bytes.len() * 8 / SHORTEST);
    let (mut code, mut length) = (0u32, 0usize);
    for bit in bytes.iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1)) {
        code = code << 1 | u32::from(bit);
        length += 1;
        if let Some(symbol) = CODE.symbol(code, length) {
            symbols.push(symbol);
            (code, length) = (0, 0);
        } else if length == LONGEST {
            return None; // the end-of-string symbol, which must not be sent
        }
    }
    // The rest is padding: fewer than 8 bits, all ones.
    (length < 8 && code == (1 << length) - 1).then_some(symbols)
}

/// Encodes a string, padded to whole bytes.
pub(crate) fn encode(symbols: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(symbols.len());
    let (mut pending, mut count) = (0u64, 0usize);
    for symbol in symbols {
        let length = bits(*symbol);
        pending = pending << length | u64::from(CODE.codes[usize::from(*symbol)]);
        count += length;
        while count >= 8 {
            count -= 8;
            bytes.push((pending >> count) as u8);
        }
    }
    if count > 0 {
        let ones = 8 - count;
        bytes.push((pending << ones | ((1 << ones) - 1)) as u8);
    }
    bytes
}

/// Length of a symbol's code.
pub(super) const fn bits(symbol: u8) -> usize {
    LENGTHS[symbol as usize] as usize
}

static CODE: Code = Code::new();

struct Code {
    codes: [u32; 256],
    /// By length: the first code, where its symbol stands in `sorted`, and how many follow.
    first: [u32; LONGEST + 1],
    offset: [usize; LONGEST + 1],
    count: [usize; LONGEST + 1],
    /// Symbols by length, then by value.
    sorted: [u8; 256],
}

impl Code {
    const fn new() -> Self {
        let mut this = Self {
            codes: [0; 256],
            first: [0; LONGEST + 1],
            offset: [0; LONGEST + 1],
            count: [0; LONGEST + 1],
            sorted: [0; 256],
        };
        let (mut next, mut at, mut length) = (0u32, 0usize, SHORTEST);
        while length <= LONGEST {
            this.first[length] = next;
            this.offset[length] = at;
            let mut symbol = 0;
            while symbol < 256 {
                if LENGTHS[symbol] as usize == length {
                    this.codes[symbol] = next;
                    this.sorted[at] = symbol as u8;
                    next += 1;
                    at += 1;
                }
                symbol += 1;
            }
            this.count[length] = at - this.offset[length];
            next <<= 1;
            length += 1;
        }
        this
    }

    fn symbol(&self, code: u32, length: usize) -> Option<u8> {
        let nth = code.checked_sub(self.first[length])? as usize;
        (nth < self.count[length]).then(|| self.sorted[self.offset[length] + nth])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rfc_7541_examples() {
        let examples: [(&[u8], &[u8]); 3] = [
            (b"www.example.com", b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"),
            (b"no-cache", b"\xa8\xeb\x10\x64\x9c\xbf"),
            (b"custom-value", b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf"),
        ];
        for (plain, coded) in examples {
            assert_eq!(encode(plain), coded);
            assert_eq!(decode(coded).as_deref(), Some(plain));
        }
    }

    #[test]
    fn the_code_is_complete() {
        let end_of_string = 1u64;
        let used: u64 = LENGTHS.iter().map(|length| 1 << (LONGEST - usize::from(*length))).sum();
        assert_eq!(used + end_of_string, 1 << LONGEST);
    }

    #[test]
    fn bad_padding_is_refused() {
        assert_eq!(decode(b"\x00"), None, "'0' and padding of zeros");
        assert_eq!(decode(b"\xff"), None, "8 bits of padding");
        assert_eq!(decode(b"\xff\xff\xff\xff"), None, "end of string");
    }

    proptest! {
        #[test]
        fn round_trips(symbols: Vec<u8>) {
            prop_assert_eq!(decode(&encode(&symbols)), Some(symbols));
        }
    }
}
