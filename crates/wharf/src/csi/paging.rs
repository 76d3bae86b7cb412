use std::collections::HashSet;

use clap::Args;

use super::failure::Failure;

/// Which part of a list is wanted.
#[derive(Args, Clone, Default)]
pub(crate) struct Page {
    /// Show at most this many entries; all of them, page by page, where it is not given
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i32).range(1..))]
    limit: Option<i32>,
    /// Begin at the next_token of an earlier answer
    #[arg(long, value_name = "TOKEN", default_value = "", hide_default_value = true)]
    token: String,
}

/// One answer of a list call.
pub(crate) struct Answer<T> {
    pub(crate) entries: Vec<T>,
    pub(crate) next: String,
}

impl Page {
    /// Asks `list`, with the most entries and a token, until there is no more or it is enough.
    pub(crate) async fn all<T>(
        &self,
        rpc: &'static str,
        list: impl AsyncFn(i32, String) -> Result<Answer<T>, Failure>,
    ) -> Result<Answer<T>, Failure> {
        let mut all = Answer { entries: Vec::new(), next: self.token.clone() };
        let mut seen = HashSet::new();
        loop {
            let had = i32::try_from(all.entries.len()).unwrap_or(i32::MAX);
            let wanted = self.limit.map_or(0, |limit| limit.saturating_sub(had));
            let page = list(wanted, all.next).await?;
            all.entries.extend(page.entries);
            all.next = page.next;
            let enough = self.limit.is_some_and(|limit| all.entries.len() >= limit as usize);
            if all.next.is_empty() || enough {
                return Ok(all);
            }
            if !seen.insert(all.next.clone()) {
                let what = format!("next_token {:?} came twice, so the list has no end", all.next);
                return Err(Failure::Wrong { rpc, what });
            }
        }
    }
}

impl<T> Answer<T> {
    /// How to go on, where there is more.
    pub(crate) fn more(&self) -> Option<String> {
        (!self.next.is_empty()).then(|| format!("There is more: --token {}", self.next))
    }
}
