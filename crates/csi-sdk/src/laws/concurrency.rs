//! Laws of concurrent calls.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use tonic::Code;

use super::{Breach, Subject, describe, is_missing};

const CALLERS: usize = 16;

impl Subject {
    /// Concurrent equal create calls make one volume, and concurrent deletes of it succeed.
    pub async fn joins_the_same_create(&self) -> Result<(), Breach> {
        let breach = |what: String| Breach::new("the same create makes one volume", what);
        let request = self.volume("law-join", self.size);
        let calls = (0..CALLERS).map(|_| self.create(request.clone()));
        let mut ids = BTreeSet::new();
        for result in join_all(calls).await {
            match result {
                Ok(id) => drop(ids.insert(id)),
                Err(status) if is_missing(&status) => return Ok(()),
                Err(status) if status.code() == Code::Aborted => {}
                Err(status) => return Err(breach(describe(&status))),
            }
        }
        ids.insert(self.create(request).await.map_err(|status| breach(describe(&status)))?);
        let only = match ids.first() {
            Some(id) if ids.len() == 1 => id.clone(),
            _ => return Err(breach(format!("made {ids:?}"))),
        };
        for result in join_all((0..CALLERS).map(|_| self.delete(only.clone()))).await {
            match result {
                Err(status) if status.code() != Code::Aborted => {
                    return Err(breach(format!("delete: {}", describe(&status))));
                }
                _ => {}
            }
        }
        self.delete(only).await.map_err(|status| breach(describe(&status)))
    }

    /// Of two concurrent creates under one name with different sizes, one makes its volume and the
    /// other fails with ABORTED or ALREADY_EXISTS.
    pub async fn serialises_conflicts(&self) -> Result<(), Breach> {
        let breach = |what: String| Breach::new("one of two conflicting creates wins", what);
        let requests = [self.size, self.size * 2].map(|size| self.volume("law-conflict", size));
        let mut won = Vec::new();
        for result in join_all(requests.into_iter().map(|request| self.create(request))).await {
            match result {
                Ok(id) => won.push(id),
                Err(status) if is_missing(&status) => return Ok(()),
                Err(status) if matches!(status.code(), Code::Aborted | Code::AlreadyExists) => {}
                Err(status) => return Err(breach(describe(&status))),
            }
        }
        if won.len() != 1 {
            return Err(breach(format!("winners: {won:?}")));
        }
        for id in won {
            self.delete(id).await.map_err(|status| breach(describe(&status)))?;
        }
        Ok(())
    }
}
