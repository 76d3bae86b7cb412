use super::*;

#[test]
fn every_condition_has_its_code_and_a_text() {
    let mut lines = Vec::new();
    for (condition, status) in table() {
        assert!(!status.message().is_empty(), "{condition}");
        assert!(status.details().is_empty(), "{condition}");
        lines.push(format!("{condition} {:?}", status.code()));
    }
    let expected = "\
CreateVolumeError::SourceNotFound NotFound
CreateVolumeError::AlreadyExists AlreadyExists
CreateVolumeError::Exhausted ResourceExhausted
CreateVolumeError::OutOfRange OutOfRange
CreateVolumeError::SourceInUse FailedPrecondition
DeleteVolumeError::InUse FailedPrecondition
ControllerPublishVolumeError::VolumeNotFound NotFound
ControllerPublishVolumeError::NodeNotFound NotFound
ControllerPublishVolumeError::Incompatible AlreadyExists
ControllerPublishVolumeError::PublishedElsewhere FailedPrecondition
ControllerPublishVolumeError::LimitReached ResourceExhausted
ControllerUnpublishVolumeError::VolumeNotFound NotFound
ControllerUnpublishVolumeError::NodeNotFound NotFound
ValidateVolumeCapabilitiesError::NotFound NotFound
ControllerGetVolumeError::NotFound NotFound
ControllerExpandVolumeError::NotFound NotFound
ControllerExpandVolumeError::InUse FailedPrecondition
ControllerExpandVolumeError::OutOfRange OutOfRange
ControllerModifyVolumeError::NotFound NotFound
ControllerGetVolumeHealthError::NotFound NotFound
CreateSnapshotError::SourceNotFound NotFound
CreateSnapshotError::AlreadyExists AlreadyExists
CreateSnapshotError::InUse FailedPrecondition
CreateSnapshotError::Exhausted ResourceExhausted
DeleteSnapshotError::GroupMember InvalidArgument
DeleteSnapshotError::InUse FailedPrecondition
GetSnapshotError::NotFound NotFound
CreateVolumeGroupSnapshotError::SourceNotFound NotFound
CreateVolumeGroupSnapshotError::AlreadyExists AlreadyExists
CreateVolumeGroupSnapshotError::CannotBeCutTogether FailedPrecondition
CreateVolumeGroupSnapshotError::Exhausted ResourceExhausted
DeleteVolumeGroupSnapshotError::MembersDiffer InvalidArgument
DeleteVolumeGroupSnapshotError::InUse FailedPrecondition
GetVolumeGroupSnapshotError::NotFound NotFound
GetVolumeGroupSnapshotError::MembersDiffer InvalidArgument
NodeStageVolumeError::NotFound NotFound
NodeStageVolumeError::Incompatible AlreadyExists
NodeStageVolumeError::ExceedsCapabilities FailedPrecondition
NodeUnstageVolumeError::NotFound NotFound
NodePublishVolumeError::NotFound NotFound
NodePublishVolumeError::Incompatible AlreadyExists
NodePublishVolumeError::ExceedsCapabilities FailedPrecondition
NodePublishVolumeError::NotStaged FailedPrecondition
NodeUnpublishVolumeError::NotFound NotFound
NodeGetVolumeStatsError::NotFound NotFound
NodeExpandVolumeError::NotFound NotFound
NodeExpandVolumeError::InUse FailedPrecondition
NodeExpandVolumeError::OutOfRange OutOfRange
NodeGetVolumeHealthError::NotFound NotFound";
    assert_eq!(lines.join("\n"), expected);
}

#[test]
fn failures_have_the_codes_of_the_protocol() {
    let text = || String::from("why");
    let invalid = Failure::invalid("name", "a text");
    for (failure, code) in [
        (invalid, Code::InvalidArgument),
        (Failure::PermissionDenied(text()), Code::PermissionDenied),
        (Failure::Unauthenticated(text()), Code::Unauthenticated),
        (Failure::Pending(text()), Code::Aborted),
        (Failure::Unavailable(text()), Code::Unavailable),
        (Failure::internal("why"), Code::Internal),
    ] {
        let status = Status::from(CreateVolumeError::from(failure));
        assert_eq!(status.code(), code);
        assert!(["why", "name: expected a text"].contains(&status.message()), "{status}");
    }
    assert!(!Status::from(Failure::internal("  ")).message().trim().is_empty());
}

#[test]
fn an_error_brings_its_causes() {
    #[derive(Debug, thiserror::Error)]
    #[error("cannot write the image")]
    struct Outer(#[source] std::io::Error);
    let error = Outer(std::io::Error::other("no space"));
    let failure = Failure::caused_by("create pvc-1", &error);
    assert_eq!(failure.to_string(), "create pvc-1: cannot write the image: no space");
}
