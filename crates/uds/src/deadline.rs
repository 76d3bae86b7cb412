//! Calls with a deadline.

use std::{future::Future, time::Duration};

use http::{HeaderMap, HeaderValue};
use tonic::{Request, Status};

const GRPC_TIMEOUT: &str = "grpc-timeout";
/// The largest number that a `grpc-timeout` can have.
const MOST_DIGITS: u128 = 99_999_999;

/// Waits for `call` up to `timeout`; then drops it, which resets its stream, and fails with
/// DEADLINE_EXCEEDED. `what` names the call in the error.
///
/// Logs and metrics show such a call as cancelled unless its request was made by [`timed`].
pub async fn within<T>(
    timeout: Duration,
    what: &str,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    match tokio::time::timeout(timeout, call).await {
        Ok(result) => result,
        Err(_) => Err(Status::deadline_exceeded(format!("{what} did not finish in {timeout:?}"))),
    }
}

/// A request that tells the server how long it may take, in the `grpc-timeout` header. A
/// [`Channel`](crate::Channel) and a [`Listener`](crate::Listener) both enforce it until the
/// response starts.
pub fn timed<T>(message: T, timeout: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(timeout);
    request
}

/// Enforces the `grpc-timeout` of the headers, if any, on `call`.
pub(crate) async fn within_header<T>(
    timeout: Option<Duration>,
    method: &str,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    match timeout {
        Some(timeout) => within(timeout, method, call).await,
        None => call.await,
    }
}

/// Sets the `grpc-timeout` of a request, in the finest unit that takes at most eight digits. It is
/// never more than `timeout`.
pub(crate) fn set_header_timeout(headers: &mut HeaderMap, timeout: Duration) {
    const UNITS: [(u128, char); 6] = [
        (1, 'n'),
        (1_000, 'u'),
        (1_000_000, 'm'),
        (1_000_000_000, 'S'),
        (60_000_000_000, 'M'),
        (3_600_000_000_000, 'H'),
    ];
    let amounts = UNITS.map(|(nanos, unit)| (timeout.as_nanos() / nanos, unit));
    let fitting = amounts.into_iter().find(|(amount, _)| *amount <= MOST_DIGITS);
    let (amount, unit) = fitting.unwrap_or((MOST_DIGITS, 'H'));
    if let Ok(value) = HeaderValue::try_from(format!("{amount}{unit}")) {
        headers.insert(GRPC_TIMEOUT, value);
    }
}

/// The `grpc-timeout` of a request: at most eight digits and a unit. `None` if it cannot be read.
pub(crate) fn header_timeout(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(GRPC_TIMEOUT)?.to_str().ok()?;
    let unit_at = value.len().checked_sub(1).filter(|at| (1..=8).contains(at))?;
    let (digits, unit) = value.split_at_checked(unit_at)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(amount * 3600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(value: &str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(GRPC_TIMEOUT, value.parse().unwrap());
        header_timeout(&headers)
    }

    #[test]
    fn reads_every_unit() {
        assert_eq!(parsed("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(parsed("3M"), Some(Duration::from_secs(180)));
        assert_eq!(parsed("99999999S"), Some(Duration::from_secs(99_999_999)));
        assert_eq!(parsed("100m"), Some(Duration::from_millis(100)));
        assert_eq!(parsed("7u"), Some(Duration::from_micros(7)));
        assert_eq!(parsed("0n"), Some(Duration::ZERO));
    }

    #[test]
    fn writes_as_finely_as_eight_digits_allow() {
        for (timeout, expected) in [
            (Duration::ZERO, "0n"),
            (Duration::from_nanos(99_999_999), "99999999n"),
            (Duration::from_nanos(100_000_999), "100000u"),
            (Duration::from_micros(29_500_000), "29500000u"),
            (Duration::from_secs(120), "120000m"),
            (Duration::from_secs(10_000_000), "10000000S"),
            (Duration::MAX, "99999999H"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(GRPC_TIMEOUT, HeaderValue::from_static("1S"));
            set_header_timeout(&mut headers, timeout);
            assert_eq!(headers[GRPC_TIMEOUT], expected, "{timeout:?}");
            assert_eq!(headers.len(), 1);
        }
    }

    #[test]
    fn an_unreadable_one_is_none() {
        for value in ["", "5", "S", "+5S", "5x", "999999999S", "5ü"] {
            let mut headers = HeaderMap::new();
            headers.insert(GRPC_TIMEOUT, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            assert_eq!(header_timeout(&headers), None, "{value}");
        }
    }

    #[test]
    fn a_timed_request_carries_its_timeout() {
        let headers = timed((), Duration::from_secs(90)).into_parts().0.into_headers();
        assert_eq!(header_timeout(&headers), Some(Duration::from_secs(90)));
    }

    #[tokio::test(start_paused = true)]
    async fn names_the_call_and_the_timeout() {
        let never = std::future::pending::<Result<(), Status>>();
        let status = within(Duration::from_secs(3), "NodeGetInfo", never).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
        assert_eq!(status.message(), "NodeGetInfo did not finish in 3s");
    }
}
