use std::{cell::Cell, future::Future, pin::pin, time::Duration};

use tokio::time::{Instant, Sleep, sleep_until};

/// Limit for one request to the API.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The class of an API error, by which callers decide.
#[derive(Debug, thiserror::Error)]
pub enum ApiFailure {
    /// The object does not exist.
    #[error("{what}: not found")]
    NotFound {
        /// The object or collection of the request.
        what: String,
    },
    /// Another writer was faster: read again.
    #[error("{what}: changed by someone else meanwhile")]
    Conflict {
        /// The object that was written.
        what: String,
    },
    /// The server no longer has the requested version: list again.
    #[error("{what}: the version asked for is no longer there")]
    Expired {
        /// The object or collection of the request.
        what: String,
    },
    /// The API server rejects the object as written.
    #[error("{what}: refused as invalid: {message}")]
    Invalid {
        /// The object that was written.
        what: String,
        /// The API server's reason.
        message: String,
    },
    /// The account lacks a right.
    #[error("{what}: forbidden for this account: {message}; grant it in the ClusterRole")]
    Forbidden {
        /// The object or collection of the request.
        what: String,
        /// The API server's reason.
        message: String,
    },
    /// The API did not answer: the outcome is unknown, try again.
    #[error("{what}: {message}")]
    Unreachable {
        /// The object or collection of the request.
        what: String,
        /// The failure.
        message: String,
    },
    /// The API server is overloaded, has failed, or its answer cannot be read: try again with a
    /// back-off.
    #[error("{what}: {message}")]
    Overloaded {
        /// The object or collection of the request.
        what: String,
        /// The API server's reason.
        message: String,
    },
}

impl ApiFailure {
    /// Classifies an error of the client.
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

    /// Whether the API server failed for reasons of its own, so that a retry may succeed.
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Overloaded { .. })
    }

    /// Whether a retry can succeed while everything else stays the same.
    pub fn may_pass(&self) -> bool {
        !matches!(self, Self::Invalid { .. } | Self::Forbidden { .. })
    }
}

/// Sends one request within [`REQUEST_TIMEOUT`] and classifies its error. Time in our own throttle
/// does not count.
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
    /// The deadline of the request that the current task waits for.
    static ENDS: Cell<Instant>;
}

/// Waits for a token of the throttle. The deadline of the current request counts from then.
pub(crate) async fn wait_for_token(wait: Sleep) {
    // Requests outside `bounded` have no deadline.
    let set = |ends| ENDS.try_with(|it| it.set(ends)).unwrap_or_default();
    set(wait.deadline() + REQUEST_TIMEOUT);
    wait.await;
    set(Instant::now() + REQUEST_TIMEOUT);
}

/// An error with its causes, each once: many errors repeat their cause in their own text.
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
