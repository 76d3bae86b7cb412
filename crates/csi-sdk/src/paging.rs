//! Pages of lists.
//!
//! A token is the last ID of the previous page. It stays valid when objects are created or deleted
//! between two pages: an object that exists during the whole listing is shown exactly once.

use tonic::Status;

use crate::error::Failure;

const MARK: char = '>';
const MAX_ID: usize = 128;

/// The requested page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    after: Option<String>,
    limit: usize,
}

impl Page {
    /// The page after a token, with at most `max_entries`; 0 means no limit.
    pub(crate) fn new(max_entries: i32, starting_token: &str) -> Result<Self, Status> {
        let limit = usize::try_from(max_entries).map_err(|_| {
            Failure::invalid("max_entries", format!("0 or more, not {max_entries}"))
        })?;
        let limit = if limit == 0 { usize::MAX } else { limit };
        let after = match starting_token {
            "" => None,
            token => Some(decode(token).ok_or_else(|| {
                Status::aborted(
                    "starting_token: expected one from a list of this driver; start over",
                )
            })?),
        };
        Ok(Self { after, limit })
    }

    /// The ID after which the page starts.
    pub(crate) fn after<T: From<String>>(&self) -> Option<T> {
        self.after.clone().map(T::from)
    }

    /// Number of entries to request from the driver: one more than the page holds, to know whether
    /// another page follows.
    pub(crate) fn ask(&self) -> usize {
        self.limit.saturating_add(1)
    }

    /// Returns the entries of the page, and the token of the next page.
    pub(crate) fn cut<T>(
        &self,
        mut entries: Vec<T>,
        id: impl Fn(&T) -> &str,
    ) -> Result<(Vec<T>, String), Status> {
        let ids = self.after.as_deref().into_iter().chain(entries.iter().map(&id));
        if !ids.is_sorted_by(|one, next| one < next) {
            return Err(Status::internal("the driver's list is not in the order of its IDs"));
        }
        if entries.len() <= self.limit {
            return Ok((entries, String::new()));
        }
        entries.truncate(self.limit);
        let token = entries.last().map(|last| format!("{MARK}{}", id(last)));
        Ok((entries, token.unwrap_or_default()))
    }
}

fn decode(token: &str) -> Option<String> {
    let id = token.strip_prefix(MARK)?;
    let sound = !id.is_empty() && id.len() <= MAX_ID && !id.contains(char::is_control);
    sound.then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use tonic::Code;

    use super::*;

    fn list(ids: &BTreeSet<String>, page: &Page) -> Vec<String> {
        let after: Option<String> = page.after();
        let later = ids.iter().filter(|id| after.as_ref().is_none_or(|after| *id > after));
        later.take(page.ask()).cloned().collect()
    }

    proptest! {
        /// An object that exists all along is shown exactly once, whatever is created and deleted
        /// between pages.
        #[test]
        fn nothing_is_missed_or_shown_twice(
            lasting in prop::collection::btree_set("[a-m][a-z]{0,3}", 0..20),
            passing in prop::collection::vec(("[n-z][a-z]{0,3}", any::<bool>()), 0..20),
            limit in 1..5i32,
        ) {
            let mut ids = lasting.clone();
            let mut passing = passing.into_iter();
            let (mut shown, mut token) = (Vec::new(), String::new());
            loop {
                let page = Page::new(limit, &token).unwrap();
                let (entries, next) = page.cut(list(&ids, &page), String::as_str).unwrap();
                prop_assert!(entries.len() <= limit as usize);
                prop_assert!(next.is_empty() || entries.len() == limit as usize);
                shown.extend(entries);
                // Delete the last object shown: its ID in the token stays valid.
                if let Some(last) = shown.last() {
                    ids.remove(last);
                }
                for (id, made) in passing.by_ref().take(2) {
                    if made { ids.insert(id); } else { ids.remove(&id); }
                }
                if next.is_empty() {
                    break;
                }
                token = next;
            }
            let twice = shown.iter().collect::<BTreeSet<_>>().len() != shown.len();
            prop_assert!(!twice, "{shown:?}");
            prop_assert!(lasting.iter().all(|id| shown.contains(id)), "{lasting:?} {shown:?}");
        }
    }

    #[test]
    fn bad_pages_are_refused() {
        assert_eq!(Page::new(-1, "").unwrap_err().code(), Code::InvalidArgument);
        for token in ["invalid-token", ">", "5", ">a\0"] {
            assert_eq!(Page::new(0, token).unwrap_err().code(), Code::Aborted, "{token:?}");
        }
        assert_eq!(Page::new(0, ">a").unwrap().ask(), usize::MAX);
    }

    #[test]
    fn a_disorderly_driver_is_found_out() {
        let page = Page::new(2, ">b").unwrap();
        for list in [vec!["d", "c"], vec!["c", "c"], vec!["a"], vec!["b"]] {
            assert_eq!(page.cut(list, |id| id).unwrap_err().code(), Code::Internal);
        }
    }
}
