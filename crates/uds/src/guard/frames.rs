//! The frames of an HTTP/2 client, walked as they arrive, without any I/O.

use std::mem::take;

use bytes::Bytes;

use crate::{authority::repair_block, limits};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER: usize = 9;
const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const RST_STREAM: u8 = 0x3;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// Follows the frames of a client. All bytes pass at once, except those of a HEADERS frame whose
/// authority is repaired: they are held until the frame is whole.
pub(super) struct Walker {
    at: Place,
    repair: bool,
    counts: Counts,
}

/// Counts of what a client sent.
#[derive(Default)]
struct Counts {
    /// The newest stream.
    last_stream: u32,
    /// RST_STREAM frames.
    resets: usize,
    /// Bytes of all frames but for the payload of DATA.
    bytes: usize,
}

/// The part of a frame that the next byte belongs to.
enum Place {
    Preface {
        seen: usize,
    },
    Header {
        bytes: [u8; FRAME_HEADER],
        seen: usize,
    },
    /// The start of the payload of a HEADERS frame.
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
    /// A payload that is not inspected.
    Payload {
        left: usize,
    },
    /// Not HTTP/2, or at its end: everything passes.
    Foreign,
}

impl Default for Place {
    fn default() -> Self {
        Self::Preface { seen: 0 }
    }
}

impl Walker {
    pub(super) fn new(repair: bool) -> Self {
        Self { at: Place::default(), repair, counts: Counts::default() }
    }

    /// The number of streams reset since the last call.
    pub(super) fn take_resets(&mut self) -> usize {
        take(&mut self.counts.resets)
    }

    /// The units of the task's tokio budget that the frames since the last call are worth.
    pub(super) fn take_steps(&mut self) -> usize {
        let steps = self.counts.bytes / limits::BYTES_PER_STEP;
        self.counts.bytes %= limits::BYTES_PER_STEP;
        steps
    }

    /// The newest stream that the client has opened.
    pub(super) fn last_stream(&self) -> u32 {
        self.counts.last_stream
    }

    /// Walks over `chunk`, repairs whole frames in it, and returns how many of its bytes may pass.
    /// The others are held. Must not be called while bytes are [`missing`](Walker::missing).
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
                        let head = Head::of(*bytes);
                        self.counts.add(&head);
                        self.at = Place::payload(&head, self.repair);
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

    /// The buffer for the missing bytes of the held frame, if there is one.
    pub(super) fn missing(&mut self) -> Option<&mut [u8]> {
        match &mut self.at {
            Place::Held { payload, seen, .. } => Some(&mut payload[*seen..]),
            _ => None,
        }
    }

    /// Records that `count` of the missing bytes arrived. Returns the frame once it is whole.
    pub(super) fn fill(&mut self, count: usize) -> Bytes {
        let Place::Held { flags, payload, seen } = &mut self.at else { return Bytes::new() };
        *seen += count;
        if *seen < payload.len() {
            return Bytes::new();
        }
        repair_headers(*flags, payload);
        let payload = take(payload);
        self.at = Place::next_frame();
        payload.into()
    }

    /// Ends the stream: returns the held bytes, never an empty buffer.
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
    fn next_frame() -> Self {
        Self::Header { bytes: [0; FRAME_HEADER], seen: 0 }
    }

    fn payload(head: &Head, repair: bool) -> Self {
        match head.length {
            0 => Self::next_frame(),
            // A larger frame breaks the limit that we announced: do not buffer it.
            length @ ..=limits::FRAME if head.kind == HEADERS && repair => {
                Self::Headers { flags: head.flags, length: length as usize }
            }
            length => Self::Payload { left: length as usize },
        }
    }
}

/// A frame's header.
struct Head {
    length: u32,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Head {
    fn of(bytes: [u8; FRAME_HEADER]) -> Self {
        let [high, middle, low, kind, flags, stream @ ..] = bytes;
        let length = u32::from_be_bytes([0, high, middle, low]);
        // The first bit is reserved.
        Self { length, kind, flags, stream: u32::from_be_bytes(stream) & !(1 << 31) }
    }
}

impl Counts {
    fn add(&mut self, head: &Head) {
        self.bytes += FRAME_HEADER;
        if head.kind != DATA {
            // No more than this is read of any frame.
            self.bytes += head.length.min(limits::FRAME) as usize;
        }
        match head.kind {
            HEADERS => self.last_stream = self.last_stream.max(head.stream),
            RST_STREAM => self.resets += 1,
            _ => {}
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
        repair_block(block);
    }
}
