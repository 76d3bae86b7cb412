//! Follows where the frames that a server sends end.

use std::io::IoSlice;

const FRAME_HEADER: usize = 9;
const GOAWAY: u8 = 0x7;
const ENHANCE_YOUR_CALM: u32 = 0xb;
const REASON: &[u8] = b"too_many_resets";

/// The position in the frames that were written.
#[derive(Default)]
pub(super) struct Written {
    header: [u8; FRAME_HEADER],
    /// The bytes of the next frame's header that were written.
    seen: usize,
    /// The bytes of the frame's payload that are missing.
    left: usize,
}

impl Written {
    /// Records that the first `count` bytes of `slices` were written.
    pub(super) fn add(&mut self, slices: &[IoSlice<'_>], mut count: usize) {
        for slice in slices {
            let part = &slice[..slice.len().min(count)];
            count -= part.len();
            self.walk(part);
        }
    }

    /// Whether the last frame was written whole, so that a further frame may follow.
    pub(super) fn is_whole(&self) -> bool {
        self.seen == 0 && self.left == 0
    }

    fn walk(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let count = bytes.len().min(self.left);
                self.left -= count;
                bytes = &bytes[count..];
                continue;
            }
            let count = bytes.len().min(FRAME_HEADER - self.seen);
            self.header[self.seen..self.seen + count].copy_from_slice(&bytes[..count]);
            self.seen += count;
            bytes = &bytes[count..];
            if self.seen == FRAME_HEADER {
                let [high, middle, low, ..] = self.header;
                self.left = u32::from_be_bytes([0, high, middle, low]) as usize;
                self.seen = 0;
            }
        }
    }
}

/// GOAWAY with ENHANCE_YOUR_CALM. Calls after that of stream `last` were not processed.
pub(super) fn go_away(last: u32) -> Vec<u8> {
    let payload = [&last.to_be_bytes(), &ENHANCE_YOUR_CALM.to_be_bytes(), REASON].concat();
    let length = u8::try_from(payload.len()).expect("a short payload");
    [&[0, 0, length, GOAWAY, 0, 0, 0, 0, 0], payload.as_slice()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_end_where_they_end_however_they_are_written() {
        let frames = [go_away(1), vec![0, 0, 0, 4, 1, 0, 0, 0, 0], go_away(3)];
        let ends: Vec<usize> = frames
            .iter()
            .scan(0, |end, frame| {
                *end += frame.len();
                Some(*end)
            })
            .collect();
        let bytes = frames.concat();
        for size in 1..bytes.len() {
            let (mut written, mut at) = (Written::default(), 0);
            for part in bytes.chunks(size) {
                // Only the first of these bytes leave.
                written.add(&[IoSlice::new(part), IoSlice::new(b"later")], part.len());
                at += part.len();
                assert_eq!(written.is_whole(), ends.contains(&at), "{at} of {ends:?}");
            }
        }
    }
}
