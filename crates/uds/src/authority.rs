//! Makes the `:authority` of kubelet-style clients legal.
//!
//! Kubelet's plugin manager dials a bare path, and gRPC clients then send that path,
//! percent-encoded, as `:authority`. h2 resets such a stream because `%` is not legal there. h2 has
//! no setting for this, so the [guard](crate::guard) of an accepted stream replaces the illegal
//! bytes ([`hpack`] says how). The length of a header block stays the same.
//!
//! Not repaired, and so reset by h2: an authority in a CONTINUATION frame or one whose name is a
//! dynamic index, which no known client sends.

mod hpack;
pub(crate) mod huffman;

pub(crate) use self::hpack::repair_block;
