use std::collections::HashSet;

use clap::Args;

use super::failure::Failure;

/// Flags that select a part of a list.
#[derive(Args, Clone, Default)]
pub(crate) struct Page {
    /// Show at most this many entries. Default: all, page by page
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i32).range(1..))]
    limit: Option<i32>,
    /// Start at the next_token of an earlier answer
    #[arg(long, value_name = "TOKEN", default_value = "", hide_default_value = true)]
    token: String,
}

/// One answer of a list call.
pub(crate) struct Answer<T> {
    pub(crate) entries: Vec<T>,
    pub(crate) next: String,
}

impl Page {
    /// Calls `list` with a maximum of entries and a token, until the list ends or has the maximum.
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
    /// The flag that continues the list, if there are more entries.
    pub(crate) fn more(&self) -> Option<String> {
        (!self.next.is_empty()).then(|| format!("There are more entries: --token {}", self.next))
    }
}
