//! What a failed attempt says about the volume.

use tonic::Code;

/// Where the making of a volume stands after an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The driver is certainly not at it.
    Finished,
    /// The driver may be at it: it has to be asked until it says, even if the claim goes.
    InBackground,
    /// Nothing was learnt that was not known before.
    NoChange,
    /// It cannot be made where it was asked for, and may be elsewhere.
    Reschedule,
}

/// The state by the code of the driver's answer. ResourceExhausted is final, as CSI has it for CreateVolume: a claim that
/// finds no room must not wait for room in order to be deleted. `movable` tells that the scheduler picked a node and may pick another.
pub(super) fn after_error(code: Code, movable: bool) -> State {
    match code {
        Code::ResourceExhausted if movable => State::Reschedule,
        Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted => {
            State::InBackground
        }
        _ => State::Finished,
    }
}

/// Whether an answer to a repeated request tells that the driver has no volume of it and is not making one. One that is
/// about the caller, or about a volume that is not as it is asked for, does not.
pub(super) fn is_settling(code: Code) -> bool {
    let tells_nothing =
        matches!(code, Code::AlreadyExists | Code::Unauthenticated | Code::PermissionDenied);
    !tells_nothing && after_error(code, false) == State::Finished
}

/// Whether the driver says that no retry can help.
pub(super) fn is_infeasible(code: Code) -> bool {
    code == Code::InvalidArgument
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_the_state_upstream_gives_it() {
        let background =
            [Code::Cancelled, Code::DeadlineExceeded, Code::Unavailable, Code::Aborted];
        for number in 1..=16 {
            let code = Code::from_i32(number);
            for movable in [false, true] {
                let expected = match code {
                    Code::ResourceExhausted if movable => State::Reschedule,
                    code if background.contains(&code) => State::InBackground,
                    _ => State::Finished,
                };
                assert_eq!(after_error(code, movable), expected, "{code:?} {movable}");
            }
        }
        for code in [Code::AlreadyExists, Code::Unauthenticated, Code::PermissionDenied] {
            assert!(!is_settling(code), "{code:?}");
        }
        assert!(background.into_iter().all(|code| !is_settling(code)));
        assert!(is_settling(Code::ResourceExhausted) && is_settling(Code::Internal));
        assert!(is_infeasible(Code::InvalidArgument));
        assert!(!is_infeasible(Code::OutOfRange));
    }
}
