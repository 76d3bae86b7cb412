use proptest::{collection::vec, prelude::*, test_runner::RngSeed};

use super::*;
use crate::varint;

/// Valid and broken pieces of messages: wrong lengths, unclosed groups, illegal field numbers.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let tag = (prop_oneof![1..20_u64, Just(0), Just(1 << 29), any::<u64>()], 0..8_u64);
    let tag = tag.prop_map(|(number, kind)| written(number << 3 | kind));
    let groups = (1..5_usize, 0..40_usize).prop_map(|(number, depth)| {
        let (start, end) = (number as u8 * 8 + 3, number as u8 * 8 + 4);
        [vec![start; depth], vec![end; depth]].concat()
    });
    let leaf = prop_oneof![
        3 => (1..20_u64, any::<u64>()).prop_map(|(number, value)| {
            [written(number << 3), written(value)].concat()
        }),
        2 => tag,
        1 => any::<u64>().prop_map(|size| [vec![0x0a], written(size), vec![0; 3]].concat()),
        1 => groups,
        1 => vec(any::<u8>(), 0..12),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        (1..20_u64, vec(inner, 0..6)).prop_map(|(number, fields)| {
            let content = fields.concat();
            [written(number << 3 | 2), written(content.len() as u64), content].concat()
        })
    })
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let sound = vec(any::<u8>(), 0..40).prop_map(|message| {
        Frame { compressed: message.len() % 2 == 0, message: message.into() }.encode().into()
    });
    let header = (0..3_u8, any::<u32>())
        .prop_map(|(flag, size)| [vec![flag], size.to_be_bytes().to_vec()].concat());
    let piece = prop_oneof![4 => sound, 1 => header, 1 => vec(any::<u8>(), 0..12)];
    vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn written(value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    varint::write(value, &mut bytes);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(5),
        cases: 512,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn messages(fields in vec(message(), 0..8)) {
        let bytes = fields.concat();
        walk(&bytes);
        edit(&bytes);
    }

    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..256)) {
        walk(&bytes);
        edit(&bytes);
        frames(&bytes);
    }

    #[test]
    fn bodies(cut: u8, limit in 0..48_u8, body in body()) {
        frames(&[vec![cut, limit], body].concat());
    }
}

#[test]
fn messages_cut_at_every_byte() {
    let whole = [
        &[0x08, 0x96, 0x01][..],
        &[0x11, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0x1a, 4, 0x0a, 2, b'h', b'i'],
        &[0x23, 0x2b, 0x30, 1, 0x2c, 0x24],
        &[0x1a, 3, 0x08, 0x80, 0x01],
        &[0x35, 1, 2, 3, 4],
    ]
    .concat();
    for end in 0..=whole.len() {
        walk(&whole[..end]);
        edit(&whole[..end]);
    }
}

/// As many pieces as allowed. A quadratic encoder would take minutes.
#[test]
fn a_message_in_very_many_pieces_is_written_in_one_go() {
    let (other, piece) = ([0x10, 1], [0x1a, 2, 0x08, 1]);
    let bytes = [other.repeat(1 << 16), piece.repeat(1 << 16)].concat();
    let mut message = Message::parse(bytes.into()).unwrap();
    message.open(3).unwrap().set_varint(2, 7);
    let inner = Message::parse(message.encode()).unwrap().open(3).unwrap().encode();
    assert_eq!(fields(&inner).count(), (1 << 16) + 1);
}

#[test]
fn depth_is_no_way_to_the_end_of_the_stack() {
    for byte in [0x0b, 0x0c] {
        let groups = vec![byte; 1 << 20];
        assert!(fields(&groups).any(|field| field.is_err()));
    }
    let mut nested = vec![0x08, 1];
    for _ in 0..10_000 {
        nested = [vec![0x0a], written(nested.len() as u64), nested].concat();
    }
    walk(&nested);
    edit(&nested);
}
