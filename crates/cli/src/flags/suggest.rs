/// The known name nearest to `unknown`, if it is near enough for a typing error.
pub(super) fn nearest<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Charts mix up `_` and `-`: both count as the same.
    let unknown = unknown.to_ascii_lowercase().replace('_', "-");
    let tolerance = (unknown.chars().count() / 3).min(4);
    known
        .map(|name| (distance(&unknown, &name.replace('_', "-")), name))
        .filter(|(distance, _)| *distance <= tolerance)
        .min()
        .map(|(_, name)| name)
}

/// The Levenshtein distance, computed row by row.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replace = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_only_near_names() {
        let known = ["csi-address", "timeout", "worker-threads", "v", "log_dir"];
        for (unknown, expected) in [
            ("csi-adress", Some("csi-address")),
            ("csi_address", Some("csi-address")),
            ("CSI-Address", Some("csi-address")),
            ("log-dir", Some("log_dir")),
            ("time-out", Some("timeout")),
            ("workers-threads", Some("worker-threads")),
            ("x", None),
            ("completely-different", None),
        ] {
            assert_eq!(nearest(unknown, known.into_iter()), expected, "{unknown}");
        }
    }

    #[test]
    fn distance_counts_edits() {
        for (a, b, expected) in
            [("", "", 0), ("", "abc", 3), ("kitten", "sitting", 3), ("flaw", "lawn", 2)]
        {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }
}
