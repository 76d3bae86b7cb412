use tonic::{Code, Status};

/// What an error says about the work that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The driver did not start or did fail: nothing is in progress, nothing is half done.
    Final,
    /// The call never reached the driver: nothing happened, and trying again is right.
    Transient,
    /// The driver may be at work on it now, or may have finished it: ask again before undoing anything.
    Uncertain,
}

/// Classifies an error by its code.
///
/// `reached` tells whether the call got as far as the driver: a refused connection is [`ErrorClass::Transient`], the
/// same code from a driver that hung up in the middle is [`ErrorClass::Uncertain`].
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
