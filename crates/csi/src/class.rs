use tonic::{Code, Status};

/// Meaning of a failed call for the work that it requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The driver did nothing, or failed and undid it: no operation is in progress.
    Final,
    /// The call never reached the driver: nothing happened, retry it.
    Transient,
    /// The driver may still be working on the call or may have finished it: ask again before
    /// undoing anything.
    Uncertain,
}

/// Classifies an error by its gRPC code.
///
/// `reached` says whether the call reached the driver: a refused connection is
/// [`ErrorClass::Transient`], the same code from a driver that closed the connection during the
/// call is [`ErrorClass::Uncertain`].
///
/// ```
/// use tonic::Status;
/// use wharf_csi::{ErrorClass, class};
///
/// assert_eq!(class(&Status::not_found("no such volume"), true), ErrorClass::Final);
/// assert_eq!(class(&Status::deadline_exceeded("no answer"), true), ErrorClass::Uncertain);
/// assert_eq!(class(&Status::unavailable("connection refused"), false), ErrorClass::Transient);
/// ```
pub fn class(status: &Status, reached: bool) -> ErrorClass {
    match status.code() {
        _ if !reached => ErrorClass::Transient,
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Unavailable
        | Code::ResourceExhausted
        | Code::Aborted => ErrorClass::Uncertain,
        _ => ErrorClass::Final,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_class_kubelet_gives_them() {
        let uncertain = [
            Code::Cancelled,
            Code::DeadlineExceeded,
            Code::Unavailable,
            Code::ResourceExhausted,
            Code::Aborted,
        ];
        for number in 1..=16 {
            let code = Code::from_i32(number);
            let expected =
                if uncertain.contains(&code) { ErrorClass::Uncertain } else { ErrorClass::Final };
            assert_eq!(class(&Status::new(code, "x"), true), expected, "{code:?}");
            assert_eq!(class(&Status::new(code, "x"), false), ErrorClass::Transient, "{code:?}");
        }
    }
}
