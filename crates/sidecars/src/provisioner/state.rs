//! What a failed attempt says about the volume.

use tonic::Code;

/// The state of the volume after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The driver is certainly not working on it.
    Finished,
    /// The driver may be working on it: CreateVolume is repeated until a final answer, even if the
    /// claim is deleted.
    InBackground,
    /// The failure says nothing new.
    NoChange,
    /// It cannot be created in the requested segment, but may be in a different one.
    Reschedule,
}

/// The state by the code of the driver's answer. ResourceExhausted is final, as in CSI's
/// CreateVolume: otherwise a claim that finds no room could not be deleted before there is room.
/// `movable`: the scheduler selected a node and may select another.
pub(super) fn after_error(code: Code, movable: bool) -> State {
    match code {
        Code::ResourceExhausted if movable => State::Reschedule,
        Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted => {
            State::InBackground
        }
        _ => State::Finished,
    }
}

/// Whether an answer to a repeated request means that the driver has no volume of it and is not
/// creating one. An error about the caller, or about a volume that differs from the request, does
/// not.
pub(super) fn is_settling(code: Code) -> bool {
    let tells_nothing =
        matches!(code, Code::AlreadyExists | Code::Unauthenticated | Code::PermissionDenied);
    !tells_nothing && after_error(code, false) == State::Finished
}

/// Whether the driver reports that no retry can help.
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
