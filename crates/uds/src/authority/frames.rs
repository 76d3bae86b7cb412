//! The frames of an HTTP/2 client, walked as they arrive, without any I/O.

use bytes::Bytes;

use super::hpack;
use crate::limits;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER: usize = 9;
const HEADERS: u8 = 0x1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// Follows the frames of a client. All bytes pass at once but for those of a HEADERS frame, which
/// are held until the frame is whole.
#[derive(Default)]
pub(super) struct Walker {
    at: Place,
}

/// What the next byte belongs to.
enum Place {
    Preface {
        seen: usize,
    },
    Header {
        bytes: [u8; FRAME_HEADER],
        seen: usize,
    },
    /// The payload of a HEADERS frame of which nothing was seen yet.
    Headers {
        flags: u8,
        length: usize,
    },
    /// The same, of which the first `seen` bytes are held.
    Held {
        flags: u8,
        payload: Vec<u8>,
        seen: usize,
    },
    /// A payload that is of no interest.
    Payload {
        left: usize,
    },
    /// Not HTTP/2, or at its end: everything passes.
    Foreign,
}

impl Default for Place {
    fn default() -> Place {
        Place::Preface { seen: 0 }
    }
}

impl Walker {
    /// Walks over `chunk`, repairs what is whole in it, and says how many of its bytes may go on.
    /// The others are held. Not to be called while something is [`missing`](Walker::missing).
    pub(super) fn walk(&mut self, chunk: &mut [u8]) -> usize {
        let mut passed = 0;
        while passed < chunk.len() {
            let rest = &mut chunk[passed..];
            passed += match &mut self.at {
                Place::Preface { seen } => {
                    let count = rest.len().min(PREFACE.len() - *seen);
                    if rest[..count] != PREFACE[*seen..*seen + count] {
                        self.at = Place::Foreign;
                        continue;
                    }
                    *seen += count;
                    if *seen == PREFACE.len() {
                        self.at = Place::next_frame();
                    }
                    count
                }
                Place::Header { bytes, seen } => {
                    let count = rest.len().min(FRAME_HEADER - *seen);
                    bytes[*seen..*seen + count].copy_from_slice(&rest[..count]);
                    *seen += count;
                    if *seen == FRAME_HEADER {
                        self.at = Place::payload(*bytes);
                    }
                    count
                }
                Place::Headers { flags, length } if rest.len() >= *length => {
                    let (flags, length) = (*flags, *length);
                    repair_headers(flags, &mut rest[..length]);
                    self.at = Place::next_frame();
                    length
                }
                Place::Headers { flags, length } => {
                    let mut payload = vec![0; *length];
                    payload[..rest.len()].copy_from_slice(rest);
                    self.at = Place::Held { flags: *flags, payload, seen: rest.len() };
                    return passed;
                }
                Place::Payload { left } => {
                    let count = rest.len().min(*left);
                    *left -= count;
                    if *left == 0 {
                        self.at = Place::next_frame();
                    }
                    count
                }
                Place::Held { .. } | Place::Foreign => rest.len(),
            };
        }
        passed
    }

    /// Where to put what is missing of the frame that is held, if one is.
    pub(super) fn missing(&mut self) -> Option<&mut [u8]> {
        match &mut self.at {
            Place::Held { payload, seen, .. } => Some(&mut payload[*seen..]),
            _ => None,
        }
    }

    /// `count` bytes of what was missing are there. Returns the frame once it is whole.
    pub(super) fn fill(&mut self, count: usize) -> Bytes {
        let Place::Held { flags, payload, seen } = &mut self.at else { return Bytes::new() };
        *seen += count;
        if *seen < payload.len() {
            return Bytes::new();
        }
        repair_headers(*flags, payload);
        let payload = std::mem::take(payload);
        self.at = Place::next_frame();
        payload.into()
    }

    /// The stream has ended: returns what is held, which is never nothing.
    pub(super) fn end(&mut self) -> Bytes {
        match std::mem::replace(&mut self.at, Place::Foreign) {
            Place::Held { mut payload, seen, .. } => {
                payload.truncate(seen);
                payload.into()
            }
            _ => Bytes::new(),
        }
    }
}

impl Place {
    fn next_frame() -> Place {
        Place::Header { bytes: [0; FRAME_HEADER], seen: 0 }
    }

    fn payload(header: [u8; FRAME_HEADER]) -> Place {
        let [high, middle, low, kind, flags, ..] = header;
        match u32::from_be_bytes([0, high, middle, low]) {
            0 => Place::next_frame(),
            // A larger one breaks the limit that we announced: it is not worth memory.
            length @ ..=limits::FRAME if kind == HEADERS => {
                Place::Headers { flags, length: length as usize }
            }
            length => Place::Payload { left: length as usize },
        }
    }
}

/// Repairs the header block in the payload of a HEADERS frame.
fn repair_headers(flags: u8, payload: &mut [u8]) {
    let (mut start, mut end) = (0, payload.len());
    if flags & PADDED != 0 {
        start += 1;
        end = end.saturating_sub(usize::from(payload[0]));
    }
    if flags & PRIORITY != 0 {
        start += 5;
    }
    if let Some(block) = payload.get_mut(start..end) {
        hpack::repair_block(block);
    }
}
