//! Properties that hold for any bytes. A violation panics. Called by seeded tests and by the
//! targets of the `fuzz` package.

use std::collections::BTreeSet;

use bytes::Bytes;
use prost::Message as _;

use crate::{
    Field, Message,
    field::{Value, WireError, fields},
    frame::{Frame, FrameError, Frames},
    last_bytes,
};

/// Maximum depth to which messages are opened: any byte may start a nested message.
const MAX_DEPTH: usize = 8;

/// The walker reads every byte once, in order, and accepts what prost accepts.
pub fn walk(bytes: &[u8]) {
    let read = walk_message(bytes, MAX_DEPTH);
    let expected = <()>::decode(bytes).is_ok();
    // prost accepts groups nested deeper than our limit.
    assert!(read.is_ok() == expected || matches!(read, Err(WireError::Group { .. })), "{read:?}");
}

/// Opening fields does not change a message, and a change affects only its own field.
pub fn edit(bytes: &[u8]) {
    let original = Bytes::copy_from_slice(bytes);
    let Ok(mut message) = Message::parse(original.clone()) else { return };
    let numbers: BTreeSet<u32> = well_formed(bytes).map(|field| field.number).collect();
    for number in &numbers {
        assert_eq!(last_bytes(&original, [*number]).map(|[text]| text), message.bytes(*number));
        open_fields(&mut message, *number, MAX_DEPTH);
    }
    assert!(!message.is_changed());
    assert_eq!(message.encode(), original);

    for number in numbers.into_iter().take(MAX_DEPTH) {
        let change = |change: fn(&mut Message, u32)| {
            let mut message = message.clone();
            change(&mut message, number);
            let changed = message.encode();
            assert_eq!(others(&changed, number), others(bytes, number));
            Message::parse(changed).expect("what is written can be read")
        };
        let cleared = change(Message::clear);
        assert_eq!(cleared.all(number), Ok(Vec::new()));
        let text = change(|message, number| message.set_bytes(number, b"text"));
        assert_eq!(text.bytes(number), Ok(Some("text".into())));
        let count = change(|message, number| message.set_varint(number, u64::MAX));
        assert_eq!(count.varint(number), Ok(Some(u64::MAX)));
        let list = change(|message, number| message.set_all(number, &["a".into(), "".into()]));
        assert_eq!(list.all(number), Ok(vec!["a".into(), Bytes::new()]));
        let opened = change(|message, number| {
            if let Ok(inner) = message.open(number) {
                inner.set_varint(1, 7);
            }
        });
        if let Ok(inner) = opened.clone().open(number) {
            assert_eq!(inner.varint(1), Ok(Some(7)));
        }
    }
}

/// A body yields the same messages however it is cut, and none above the limit. The first two bytes
/// choose the cut and the limit.
pub fn frames(bytes: &[u8]) {
    let [cut, limit, body @ ..] = bytes else { return };
    let (cut, limit) = (usize::from(*cut).max(1), usize::from(*limit));
    let (whole, end) = split([body].into_iter(), limit);
    assert_eq!(split(body.chunks(cut), limit), (whole.clone(), end));
    assert!(whole.iter().all(|frame| frame.message.len() <= limit));
    let written: Vec<u8> = whole.iter().flat_map(Frame::encode).collect();
    assert!(body.starts_with(&written));
    assert!(end.is_err() || written == body, "a body that ended well was read to its end");
}

fn walk_message(bytes: &[u8], depth: usize) -> Result<(), WireError> {
    let mut end = 0;
    for field in fields(bytes) {
        let field = field?;
        assert_eq!(Some(field.raw), bytes.get(end..end + field.raw.len()));
        end += field.raw.len();
        match field.value {
            Value::Group(content) => walk_message(content, 0).expect("a group was read to its end"),
            // The bytes may be a message, but need not be.
            Value::Bytes(content) if depth > 0 => {
                walk_message(content, depth - 1).unwrap_or_default();
            }
            _ => {}
        }
    }
    assert_eq!(end, bytes.len());
    Ok(())
}

fn open_fields(message: &mut Message, number: u32, depth: usize) {
    let _ = (message.varint(number), message.bytes(number), message.map(number));
    let Some(depth) = depth.checked_sub(1) else { return };
    let Ok(inner) = message.open(number) else { return };
    let bytes = inner.encode();
    if let Some(first) = well_formed(&bytes).next() {
        open_fields(inner, first.number, depth);
    }
}

fn others(bytes: &[u8], number: u32) -> Vec<&[u8]> {
    well_formed(bytes).filter(|field| field.number != number).map(|field| field.raw).collect()
}

fn well_formed(bytes: &[u8]) -> impl Iterator<Item = Field<'_>> {
    fields(bytes).map(|field| field.expect("a message that was read before"))
}

fn split<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
    limit: usize,
) -> (Vec<Frame>, Result<(), FrameError>) {
    let mut frames = Frames::new(limit);
    let mut read = Vec::new();
    for piece in pieces {
        frames.push(piece);
        loop {
            match frames.next_frame() {
                Ok(Some(frame)) => read.push(frame),
                Ok(None) => break,
                Err(error) => return (read, Err(error)),
            }
        }
    }
    (read, frames.finish())
}

#[cfg(test)]
mod tests;
