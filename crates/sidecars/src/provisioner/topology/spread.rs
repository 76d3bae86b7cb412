/// The index of the preferred segment for a claim.
///
/// Claims of a StatefulSet are named `<claim>-<set>-<ordinal>`: those of one pod go to one segment,
/// and those of the next pod to the next. The set's name determines the first one, so that sets
/// begin at different segments.
pub(super) fn offset(claim: &str, places: usize) -> usize {
    let (hashed, ordinal) = match claim.rsplit_once('-') {
        Some((before, ordinal)) => match parse(ordinal) {
            Some(ordinal) => (before.rsplit_once('-').map_or(before, |(_, set)| set), ordinal),
            None => (claim, 0),
        },
        None => (claim, 0),
    };
    let first = fnv1(hashed).wrapping_add(ordinal);
    let places = u32::try_from(places).unwrap_or(u32::MAX).max(1);
    (first % places) as usize
}

/// A number as Go parses it: without a sign.
fn parse(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn fnv1(text: &str) -> u32 {
    text.bytes()
        .fold(2_166_136_261, |hash: u32, byte| hash.wrapping_mul(16_777_619) ^ u32::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_fnv_1() {
        for (text, hash) in [("", 0x811c_9dc5), ("a", 0x050c_5d7e), ("foobar", 0x31f0_b262)] {
            assert_eq!(fnv1(text), hash, "{text}");
        }
    }

    #[test]
    fn pods_of_a_set_take_turns() {
        for claim in ["testpvcA-testset-1", "testpvcB-testset-1"] {
            assert_eq!(offset(claim, 4), 0, "{claim}");
        }
        let turns: Vec<usize> =
            (0..5).map(|pod| offset(&format!("data-testset-{pod}"), 4)).collect();
        assert_eq!(turns, [3, 0, 1, 2, 3]);
    }

    #[test]
    fn other_names_are_hashed_whole() {
        assert_eq!(offset("single", 7), fnv1("single") as usize % 7);
        assert_eq!(offset("a-b-c", 7), fnv1("a-b-c") as usize % 7);
        assert_eq!(offset("name-3", 7), (fnv1("name").wrapping_add(3)) as usize % 7);
        assert_eq!(offset("a-+1", 7), fnv1("a-+1") as usize % 7);
        let large = "a-99999999999";
        assert_eq!(offset(large, 7), fnv1(large) as usize % 7);
    }
}
