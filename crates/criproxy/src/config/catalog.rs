//! What is in force, from what is and was in the folder. No I/O.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::file::parse;
use super::folder::Reading;
use super::{FileError, FileWarning, Server, Servers};

/// The files there are, each with what it last said.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    reading: Reading,
    state: State,
    /// What is in force.
    server: Option<Arc<Server>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Loaded,
    Empty,
    Refused,
}

/// What changed about one file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    Loaded {
        server: Arc<Server>,
        warnings: Vec<FileWarning>,
    },
    /// It is being written, or was left empty.
    Empty {
        name: String,
    },
    /// `kept` tells whether what it said before stays in force.
    Refused {
        name: String,
        error: FileError,
        kept: bool,
    },
    Removed {
        name: String,
    },
}

impl Catalog {
    /// Takes in what is there now, and tells what is different.
    pub(super) fn update(&mut self, files: BTreeMap<String, Reading>) -> Vec<News> {
        let mut news = Vec::new();
        self.entries.retain(|name, _| {
            let kept = files.contains_key(name);
            if !kept {
                news.push(News::Removed { name: name.clone() });
            }
            kept
        });
        for (name, reading) in files {
            let known = self.entries.get(&name);
            if known.is_some_and(|entry| entry.reading == reading) {
                continue;
            }
            let last = known.and_then(|entry| entry.server.clone());
            let (state, server, told) = judge(&name, &reading, last);
            self.entries.insert(name, Entry { reading, state, server });
            news.push(told);
        }
        news
    }

    /// What is in force.
    pub(super) fn servers(&self) -> Servers {
        Servers::new(self.entries.values().filter_map(|entry| entry.server.clone()).collect())
    }

    /// How many files there are of each kind.
    pub(super) fn counts(&self) -> [(&'static str, usize); 3] {
        let count = |state| self.entries.values().filter(|entry| entry.state == state).count();
        [
            ("loaded", count(State::Loaded)),
            ("empty", count(State::Empty)),
            ("refused", count(State::Refused)),
        ]
    }
}

/// What a file's reading makes of it, with the server that it stood for until now.
fn judge(
    name: &str,
    reading: &Reading,
    last: Option<Arc<Server>>,
) -> (State, Option<Arc<Server>>, News) {
    let parsed = match reading {
        Ok(text) if text.trim_ascii().is_empty() => {
            return (State::Empty, last, News::Empty { name: name.to_owned() });
        }
        Ok(text) => parse(name, text),
        Err(error) => Err(error.clone()),
    };
    match parsed {
        Ok((server, warnings)) => {
            let server = Arc::new(server);
            (State::Loaded, Some(server.clone()), News::Loaded { server, warnings })
        }
        Err(error) => {
            let kept = last.is_some();
            (State::Refused, last, News::Refused { name: name.to_owned(), error, kept })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &[u8] =
        br#"{"remote-endpoint": "/run/a.sock", "runtime-hooks": ["PreCreateContainer"]}"#;

    fn files<'a>(
        files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> BTreeMap<String, Reading> {
        files.into_iter().map(|(name, text)| (name.to_owned(), Ok(text.to_owned()))).collect()
    }

    fn names(catalog: &Catalog) -> Vec<String> {
        catalog.servers().iter().map(|server| server.name.clone()).collect()
    }

    #[test]
    fn a_bad_file_keeps_what_it_said_before() {
        let mut catalog = Catalog::default();
        let news = catalog.update(files([("a.json", GOOD)]));
        assert!(matches!(&news[..], [News::Loaded { .. }]), "{news:?}");
        let before = catalog.servers();
        for bad in [&b"{"[..], b"[]", b"{}", b"\xff"] {
            let news = catalog.update(files([("a.json", bad)]));
            assert!(matches!(&news[..], [News::Refused { kept: true, .. }]), "{news:?}");
            assert_eq!(catalog.servers(), before);
            assert_eq!(catalog.update(files([("a.json", bad)])), [], "told once");
        }
        assert_eq!(catalog.counts(), [("loaded", 0), ("empty", 0), ("refused", 1)]);
        assert_eq!(catalog.update(BTreeMap::new()), [News::Removed { name: "a.json".into() }]);
        assert_eq!(catalog.servers(), Servers::default());
    }

    /// A file that is made and then written, as koordlet does, never stands for nothing.
    #[test]
    fn an_empty_file_waits_for_its_content() {
        let mut catalog = Catalog::default();
        assert_eq!(
            catalog.update(files([("a.json", &b""[..])])),
            [News::Empty { name: "a.json".into() }]
        );
        assert_eq!(catalog.counts(), [("loaded", 0), ("empty", 1), ("refused", 0)]);
        catalog.update(files([("a.json", GOOD)]));
        assert_eq!(names(&catalog), ["a.json"]);
        catalog.update(files([("a.json", &b" \n"[..])]));
        assert_eq!(names(&catalog), ["a.json"], "the last good one");
    }

    #[test]
    fn a_bad_file_does_nothing_to_others() {
        let mut catalog = Catalog::default();
        let news = catalog.update(files([("a.json", &b"{"[..]), ("b.json", GOOD)]));
        assert!(matches!(&news[..], [News::Refused { kept: false, .. }, News::Loaded { .. }]));
        assert_eq!(names(&catalog), ["b.json"]);
        assert_eq!(catalog.counts(), [("loaded", 1), ("empty", 0), ("refused", 1)]);
    }

    #[test]
    fn order_comes_before_name() {
        let last = br#"{"remote-endpoint": "/a", "order": 1}"#;
        let first = br#"{"remote-endpoint": "/a", "order": -1}"#;
        let mut catalog = Catalog::default();
        catalog.update(files([
            ("a.json", &last[..]),
            ("b.json", GOOD),
            ("c.json", GOOD),
            ("d.json", first),
        ]));
        assert_eq!(names(&catalog), ["d.json", "b.json", "c.json", "a.json"]);
    }
}
