//! The messages of a gRPC body: a header of five bytes, then the message.

use bytes::{Buf, Bytes, BytesMut};

const HEADER: usize = 5;

/// One message of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Whether the message is compressed, with the algorithm that the headers name.
    pub compressed: bool,
    /// Content of the message.
    pub message: Bytes,
}

/// Why bytes are not a gRPC body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A message that is larger than the limit.
    #[error("a message has {size} bytes: at most {limit} are allowed")]
    TooLarge {
        /// Size of the message.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// A flag that is neither 0 nor 1.
    #[error("a message begins with {0}: expected 0 (not compressed) or 1 (compressed)")]
    Flag(u8),
    /// The body ends inside a message.
    #[error("the body ends inside a message: {missing} bytes are missing")]
    Truncated {
        /// Minimum number of missing bytes.
        missing: usize,
    },
}

impl Frame {
    /// Encodes the frame.
    pub fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(HEADER + self.message.len());
        bytes.extend_from_slice(&[u8::from(self.compressed)]);
        let size = u32::try_from(self.message.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&size.to_be_bytes());
        bytes.extend_from_slice(&self.message);
        bytes.freeze()
    }
}

/// Splits a body into its messages; the pieces of the body may be cut anywhere.
#[derive(Debug)]
pub struct Frames {
    pending: BytesMut,
    limit: usize,
}

impl Frames {
    /// Accepts messages of up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { pending: BytesMut::new(), limit }
    }

    /// Appends a piece of the body.
    pub fn push(&mut self, piece: &[u8]) {
        self.pending.extend_from_slice(piece);
    }

    /// Returns the next complete message.
    ///
    /// # Errors
    /// If the header is invalid or announces a message above the limit.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some([flag, size @ ..]) = self.pending.first_chunk::<HEADER>() else { return Ok(None) };
        let (flag, size) = (*flag, u32::from_be_bytes(*size) as usize);
        if flag > 1 {
            return Err(FrameError::Flag(flag));
        }
        if size > self.limit {
            return Err(FrameError::TooLarge { size, limit: self.limit });
        }
        if self.pending.len() < HEADER + size {
            return Ok(None);
        }
        self.pending.advance(HEADER);
        Ok(Some(Frame { compressed: flag == 1, message: self.pending.split_to(size).freeze() }))
    }

    /// Ends the body.
    ///
    /// # Errors
    /// If the body ends inside a message.
    pub fn finish(&self) -> Result<(), FrameError> {
        let missing = match self.pending.first_chunk::<HEADER>() {
            None if self.pending.is_empty() => return Ok(()),
            None => HEADER - self.pending.len(),
            Some([_, size @ ..]) => {
                (HEADER + u32::from_be_bytes(*size) as usize).saturating_sub(self.pending.len())
            }
        };
        Err(FrameError::Truncated { missing })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn however_it_is_cut(messages: Vec<(bool, Vec<u8>)>, cut in 1_usize..20) {
            let sent: Vec<Frame> = messages
                .into_iter()
                .map(|(compressed, message)| Frame { compressed, message: message.into() })
                .collect();
            let body: Vec<u8> = sent.iter().flat_map(Frame::encode).collect();
            let mut frames = Frames::new(1 << 20);
            let mut received = Vec::new();
            for piece in body.chunks(cut) {
                frames.push(piece);
                while let Some(frame) = frames.next_frame().expect("well formed") {
                    received.push(frame);
                }
            }
            prop_assert_eq!(received, sent);
            prop_assert_eq!(frames.finish(), Ok(()));
        }

        #[test]
        fn hostile_bodies_end_in_an_error_or_wait(body: Vec<u8>) {
            let mut frames = Frames::new(64);
            frames.push(&body);
            while let Ok(Some(_)) = frames.next_frame() {}
        }
    }

    #[test]
    fn a_message_over_the_limit_is_refused_by_its_header() {
        let mut frames = Frames::new(10);
        frames.push(&[0, 0, 0, 0, 11]);
        assert_eq!(frames.next_frame(), Err(FrameError::TooLarge { size: 11, limit: 10 }));
        let mut frames = Frames::new(10);
        frames.push(&[2, 0, 0, 0, 1, 7]);
        assert_eq!(frames.next_frame(), Err(FrameError::Flag(2)));
        let mut frames = Frames::new(10);
        frames.push(&[0, 0, 0, 0, 9, 1]);
        assert_eq!(frames.next_frame(), Ok(None));
        assert_eq!(frames.finish(), Err(FrameError::Truncated { missing: 8 }));
    }
}
