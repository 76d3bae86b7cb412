//! The steps after which tests kill the driver.

wharf_csi_sdk::fault_points! {
    /// A step of an operation after which the process may be killed.
    pub enum Point {
        /// The volume's ID and space are promised.
        CreatePromised,
        /// The image is created under its temporary name.
        CreateMade,
        /// The image is marked and flushed.
        CreateMarked,
        /// The image has its final name.
        CreateRenamed,
        /// The volume is complete; the caller has no answer yet.
        CreateReady,
        /// The source of a clone is frozen, or flushed if the copy is instant.
        CloneFrozen,
        /// The volume is marked for deletion.
        DeleteBegun,
        /// The image is deleted.
        DeleteUnlinked,
        /// The record is deleted; the caller has no answer yet.
        DeleteDone,
        /// The snapshot's ID and space are promised.
        SnapshotPromised,
        /// The volume is frozen, or flushed if the copy is instant.
        SnapshotFrozen,
        /// The image is copied; a frozen filesystem is still frozen.
        SnapshotCut,
        /// The volume is thawed.
        SnapshotThawed,
        /// The image is marked and flushed.
        SnapshotMarked,
        /// The image has its final name.
        SnapshotRenamed,
        /// The snapshot is complete; the caller has no answer yet.
        SnapshotReady,
        /// The snapshot is marked for deletion.
        SnapshotDeleteBegun,
        /// The snapshot's image is deleted.
        SnapshotDeleteUnlinked,
        /// The record is deleted; the caller has no answer yet.
        SnapshotDeleteDone,
        /// The group and its members are promised.
        GroupPromised,
        /// Every filesystem is frozen.
        GroupFrozen,
        /// Every filesystem is frozen, and one image is about to be copied.
        GroupCutting,
        /// One image is copied.
        GroupCutOne,
        /// Every image is copied; the filesystems are still frozen.
        GroupCut,
        /// The filesystems are thawed.
        GroupThawed,
        /// One image has its final name.
        GroupRenamedOne,
        /// Every image has its final name.
        GroupRenamed,
        /// The group is complete; the caller has no answer yet.
        GroupReady,
        /// The group is marked for deletion.
        GroupDeleteBegun,
        /// One image is deleted.
        GroupDeleteUnlinkedOne,
        /// The records are deleted; the caller has no answer yet.
        GroupDeleteDone,
        /// The space that a copy may need is allocated; the copy does not exist yet.
        ReserveMade,
        /// The copy exists, and the reserve has as many blocks as the copy shares.
        ReserveTrimmed,
        /// Shared bytes of the copy are copied into blocks of the reserve.
        UnshareCopied,
        /// The pin shares the copy's old blocks.
        UnsharePinned,
        /// The copy has the blocks of the reserve, perhaps not on disk yet.
        UnshareCloned,
        /// The copy has the blocks of the reserve on disk; the reserve has them, too.
        UnshareMoved,
        /// The reserve is truncated before these blocks.
        UnshareShortened,
        /// The copy is recorded as unshared; its empty reserve still exists.
        UnshareKept,
        /// The larger size is promised.
        ExpandPromised,
        /// The image has its new size.
        ExpandGrown,
        /// The loop devices have the new size.
        ExpandAnnounced,
        /// The new size is recorded; the caller has no answer yet.
        ExpandReady,
        /// The filesystem fills the device.
        NodeExpandGrown,
        /// The new limits are recorded.
        ModifyKept,
        /// The new limits are applied.
        ModifyApplied,
        /// The attachment is recorded; the caller has no answer yet.
        AttachKept,
        /// The attachment is removed; the caller has no answer yet.
        DetachKept,
        /// The stage is promised.
        StagePromised,
        /// The device for a journal replay is attached.
        ReplayAttached,
        /// The filesystem is mounted for a journal replay.
        ReplayMounted,
        /// The journal is replayed; the device is still attached.
        ReplayUnmounted,
        /// A copy of the image to check or grow exists.
        ReworkCopied,
        /// The copy is checked or grown.
        ReworkDone,
        /// The copy is marked and flushed.
        ReworkMarked,
        /// The copy has replaced the image.
        ReworkRenamed,
        /// The state folder has a note of the image, which is not attached yet.
        StageNoted,
        /// The loop device is attached.
        StageAttached,
        /// A format is promised.
        StageFormatting,
        /// The filesystem is created.
        StageFormatted,
        /// The filesystem is recorded.
        StageFormatKept,
        /// The filesystem is mounted.
        StageMounted,
        /// The stage is complete; the caller has no answer yet.
        StageDone,
        /// The unstage is promised.
        UnstagePromised,
        /// The filesystem is unmounted.
        UnstageUnmounted,
        /// The loop device is detached.
        UnstageDetached,
        /// The note of the attached image is removed.
        UnstageForgotten,
        /// The stage is removed from the record; the caller has no answer yet.
        UnstageDone,
        /// The publication is promised.
        PublishPromised,
        /// The target path is created.
        PublishTargetMade,
        /// The volume is mounted at the target.
        PublishMounted,
        /// The publication is complete; the caller has no answer yet.
        PublishDone,
        /// The unpublish is promised.
        UnpublishPromised,
        /// The target is unmounted.
        UnpublishUnmounted,
        /// The target path is removed.
        UnpublishTargetGone,
        /// The publication is removed from the record; its device is not detached yet.
        UnpublishForgotten,
        /// The publication is removed; the caller has no answer yet.
        UnpublishDone,
    }
}
