use wharf_cluster::CsiVolumeSource;

use super::*;

const OURS: &str = "external-attacher/a";

fn attachment(deleting: bool, finalizers: &[&str], attached: bool) -> VolumeAttachment {
    let mut attachment = VolumeAttachment::default();
    attachment.metadata.deleting = deleting;
    attachment.metadata.finalizers = finalizers.iter().map(|&it| it.into()).collect();
    attachment.status.attached = attached;
    attachment
}

#[test]
fn steps_follow_deletion_finalizer_status_and_force() {
    use Step::{Attach, Detach, MarkAttached, Nothing};
    for (deleting, finalizers, attached, expected, forced, trivial) in [
        (false, &[][..], false, Attach, Attach, MarkAttached),
        (false, &[OURS], false, Attach, Attach, MarkAttached),
        (false, &[OURS], true, Nothing, Attach, Nothing),
        (false, &[], true, Nothing, Attach, Nothing),
        (true, &[OURS], true, Detach, Detach, Nothing),
        (true, &[OURS], false, Detach, Detach, MarkAttached),
        (true, &["other"], true, Nothing, Detach, Nothing),
        (true, &[], false, Nothing, Detach, MarkAttached),
    ] {
        let attachment = attachment(deleting, finalizers, attached);
        assert_eq!(next(&attachment, OURS, true, false), expected, "{attachment:?}");
        assert_eq!(next(&attachment, OURS, true, true), forced, "forced: {attachment:?}");
        assert_eq!(next(&attachment, OURS, false, false), trivial, "trivial: {attachment:?}");
    }
}

#[test]
fn only_changes_that_count_are_a_reason() {
    let old = attachment(false, &[], false);
    let changed = |change: fn(&mut VolumeAttachment)| {
        let mut new = old.clone();
        new.metadata.resource_version = "2".to_owned();
        change(&mut new);
        reaction(Some(&old), Some(&new))
    };
    assert_eq!(reaction(None, Some(&old)), Reaction::Renew);
    assert_eq!(reaction(Some(&old), None), Reaction::Forget);
    // Our own error changes only the version, because caches do not keep errors.
    assert_eq!(changed(|_| {}), Reaction::None);
    assert_eq!(changed(|it| it.status.attached = true), Reaction::None);
    let mut attached = old.clone();
    attached.status.attached = true;
    assert_eq!(reaction(None, Some(&attached)), Reaction::None);
    assert_eq!(reaction(Some(&attached), Some(&old)), Reaction::Wake, "someone has undone it");
    attached.metadata.deleting = true;
    assert_eq!(reaction(None, Some(&attached)), Reaction::Renew);
    assert_eq!(changed(|it| it.metadata.finalizers = Box::new([OURS.into()])), Reaction::Wake);
    assert_eq!(changed(|it| it.metadata.deleting = true), Reaction::Renew);
    assert_eq!(changed(|it| it.metadata.uid = "other".to_owned()), Reaction::Renew);
    let annotated = changed(|it| it.metadata.annotations = [("a", "b")].into_iter().collect());
    assert_eq!(annotated, Reaction::Wake);
}

#[test]
fn a_volume_is_released_when_it_goes_or_is_given_back() {
    let volume = |csi: bool, deleting: bool, finalizer: &str, migrated: Option<&str>| {
        let mut volume = PersistentVolume::default();
        volume.spec.csi = csi.then(CsiVolumeSource::default);
        volume.metadata.deleting = deleting;
        volume.metadata.finalizers = Box::new([finalizer.into()]);
        if let Some(to) = migrated {
            volume.metadata.annotations = [(annotation::MIGRATED_TO, to)].into_iter().collect();
        }
        releases(&volume, OURS, "a")
    };
    assert!(volume(true, true, OURS, None));
    assert!(!volume(true, false, OURS, None));
    assert!(!volume(true, true, "other", None));
    assert!(volume(false, false, OURS, None));
    assert!(volume(false, false, OURS, Some("b")));
    assert!(!volume(false, false, OURS, Some("a")));
    assert!(volume(false, true, OURS, Some("a")));
}
