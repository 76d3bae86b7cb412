use std::{cell::Cell, future::Future, pin::pin, time::Duration};

use tokio::time::{Instant, Sleep, sleep_until};

/// How long one request to the API may take.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// What an error of the API means for whoever asked.
#[derive(Debug, thiserror::Error)]
pub enum ApiFailure {
    /// The object is not there.
    #[error("{what}: not found")]
    NotFound {
        /// What was asked for.
        what: String,
    },
    /// Someone else wrote first: read again.
    #[error("{what}: changed by someone else meanwhile")]
    Conflict {
        /// What was to be written.
        what: String,
    },
    /// The server no longer has the version that was asked for: list anew.
    #[error("{what}: the version asked for is no longer there")]
    Expired {
        /// What was asked for.
        what: String,
    },
    /// The object is not acceptable as it stands.
    #[error("{what}: refused as invalid: {message}")]
    Invalid {
        /// What was to be written.
        what: String,
        /// What the API server says is wrong.
        message: String,
    },
    /// The account may not do this.
    #[error("{what}: forbidden for this account: {message}; grant it in the ClusterRole")]
    Forbidden {
        /// What was asked for.
        what: String,
        /// What the API server says.
        message: String,
    },
    /// The API gave no answer: nothing is known, ask again.
    #[error("{what}: {message}")]
    Unreachable {
        /// What was asked for.
        what: String,
        /// What went wrong.
        message: String,
    },
    /// The API answered that it is overloaded or has failed, or its answer cannot be read: ask again, and not too often.
    #[error("{what}: {message}")]
    Overloaded {
        /// What was asked for.
        what: String,
        /// What the API server says.
        message: String,
    },
}

impl ApiFailure {
    /// Sorts an error of the client.
    pub fn of(what: &str, error: &kube::Error) -> Self {
        let what = what.to_owned();
        let status = match error {
            kube::Error::Api(status) => status,
            kube::Error::SerdeError(_) => {
                return Self::Overloaded { what, message: with_causes(error) };
            }
            _ => return Self::Unreachable { what, message: with_causes(error) },
        };
        let message = status.message.clone();
        match status.code {
            404 => Self::NotFound { what },
            409 => Self::Conflict { what },
            410 => Self::Expired { what },
            400 | 422 => Self::Invalid { what, message },
            401 | 403 => Self::Forbidden { what, message },
            _ => Self::Overloaded { what, message },
        }
    }

    /// Whether the API could not do it for reasons of its own, and may soon.
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Overloaded { .. })
    }

    /// Whether asking again without a change of something else can help.
    pub fn may_pass(&self) -> bool {
        !matches!(self, Self::Invalid { .. } | Self::Forbidden { .. })
    }
}

/// One request, bounded in time, its error sorted. The time does not run while our own throttle holds it back.
pub async fn bounded<T>(
    what: &str,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ApiFailure> {
    let clock = async {
        let mut request = pin!(request);
        loop {
            let ends = ENDS.with(Cell::get);
            tokio::select! {
                answer = &mut request => return Some(answer),
                () = sleep_until(ends) => {}
            }
            if ENDS.with(Cell::get) == ends {
                return None;
            }
        }
    };
    match ENDS.scope(Cell::new(Instant::now() + REQUEST_TIMEOUT), clock).await {
        Some(answer) => answer.map_err(|error| ApiFailure::of(what, &error)),
        None => Err(ApiFailure::Unreachable {
            what: what.to_owned(),
            message: format!("no answer within {REQUEST_TIMEOUT:?}"),
        }),
    }
}

tokio::task_local! {
    /// When the time of the request that the task waits for is over.
    static ENDS: Cell<Instant>;
}

/// Waits until it is a request's turn: its time begins then.
pub(crate) async fn turn(wait: Sleep) {
    // Requests that are not bounded have no clock.
    let set = |ends| ENDS.try_with(|it| it.set(ends)).unwrap_or_default();
    set(wait.deadline() + REQUEST_TIMEOUT);
    wait.await;
    set(Instant::now() + REQUEST_TIMEOUT);
}

/// An error with what caused it, each said once: many errors repeat their cause in their own words.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answered(code: u16) -> kube::Error {
        let status = Status { code, message: format!("said {code}"), ..Status::default() };
        kube::Error::Api(Box::new(status))
    }

    #[test]
    fn answers_are_sorted_by_what_helps() {
        let unreachable = |code: u16| (code, "Node a: said ".to_owned() + &code.to_string(), true);
        let forbidden = "forbidden for this account: said";
        for (code, text, may_pass) in [
            (404, "Node a: not found".to_owned(), true),
            (409, "Node a: changed by someone else meanwhile".to_owned(), true),
            (410, "Node a: the version asked for is no longer there".to_owned(), true),
            (400, "Node a: refused as invalid: said 400".to_owned(), false),
            (422, "Node a: refused as invalid: said 422".to_owned(), false),
            (401, format!("Node a: {forbidden} 401; grant it in the ClusterRole"), false),
            (403, format!("Node a: {forbidden} 403; grant it in the ClusterRole"), false),
            unreachable(429),
            unreachable(500),
            unreachable(503),
            unreachable(504),
        ] {
            let failure = ApiFailure::of("Node a", &answered(code));
            assert_eq!(failure.to_string(), text);
            assert_eq!(failure.may_pass(), may_pass, "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_ends() {
        let began = Instant::now();
        let failure = bounded::<()>("Node a", std::future::pending()).await.unwrap_err();
        assert_eq!(began.elapsed(), REQUEST_TIMEOUT);
        assert_eq!(failure.to_string(), "Node a: no answer within 10s");
        assert!(failure.may_pass());
    }
}
