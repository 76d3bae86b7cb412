//! The moments at which a crash is tested.

wharf_csi_sdk::fault_points! {
    /// A step of an operation after which the process may die.
    pub enum Point {
        /// The volume's id and space are promised.
        CreatePromised,
        /// The image is made, under its temporary name.
        CreateMade,
        /// The image is marked and flushed.
        CreateMarked,
        /// The image has its name.
        CreateRenamed,
        /// The volume is whole, its caller not yet told.
        CreateReady,
        /// The source of a clone can be copied: it is frozen, or flushed where a copy is instant.
        CloneFrozen,
        /// The volume is marked as going.
        DeleteBegun,
        /// The image is gone.
        DeleteUnlinked,
        /// The record is gone, its caller not yet told.
        DeleteDone,
        /// The snapshot's id and space are promised.
        SnapshotPromised,
        /// The volume can be copied: it is frozen, or flushed where a copy is instant.
        SnapshotFrozen,
        /// The image is cut; a filesystem that was frozen still is.
        SnapshotCut,
        /// The volume goes on.
        SnapshotThawed,
        /// The image is marked and flushed.
        SnapshotMarked,
        /// The image has its name.
        SnapshotRenamed,
        /// The snapshot is whole, its caller not yet told.
        SnapshotReady,
        /// The snapshot is marked as going.
        SnapshotDeleteBegun,
        /// The snapshot's image is gone.
        SnapshotDeleteUnlinked,
        /// The record is gone, its caller not yet told.
        SnapshotDeleteDone,
        /// The group and its members are promised.
        GroupPromised,
        /// Every filesystem is frozen.
        GroupFrozen,
        /// Every filesystem is frozen, and one image is about to be cut.
        GroupCutting,
        /// One image is cut.
        GroupCutOne,
        /// Every image is cut, the filesystems still frozen.
        GroupCut,
        /// The filesystems go on.
        GroupThawed,
        /// One image has its name.
        GroupRenamedOne,
        /// Every image has its name.
        GroupRenamed,
        /// The group is whole, its caller not yet told.
        GroupReady,
        /// The group is marked as going.
        GroupDeleteBegun,
        /// One image is gone.
        GroupDeleteUnlinkedOne,
        /// The records are gone, the caller not yet told.
        GroupDeleteDone,
        /// The space that a copy may need is allocated, the copy not yet made.
        ReserveMade,
        /// The copy is made, and the reserve holds as much as the copy shares.
        ReserveTrimmed,
        /// Shared bytes of the copy are in blocks of the reserve, too.
        UnshareCopied,
        /// A second file shares the copy's old blocks.
        UnsharePinned,
        /// The copy has the blocks of the reserve, though perhaps not yet on disk.
        UnshareCloned,
        /// The copy has the blocks of the reserve, which still has them, too.
        UnshareMoved,
        /// The reserve has given these blocks up.
        UnshareShortened,
        /// The copy is known to share nothing, its empty reserve not yet removed.
        UnshareKept,
        /// The larger size is promised.
        ExpandPromised,
        /// The image has its new size.
        ExpandGrown,
        /// The loop devices know it.
        ExpandAnnounced,
        /// The new size is kept, the caller not yet told.
        ExpandReady,
        /// The filesystem fills the device.
        NodeExpandGrown,
        /// The new limits are kept.
        ModifyKept,
        /// The new limits hold.
        ModifyApplied,
        /// The attachment is kept, its caller not yet told.
        AttachKept,
        /// The attachment is gone, its caller not yet told.
        DetachKept,
        /// The stage is promised.
        StagePromised,
        /// The device that a journal is replayed through is there.
        ReplayAttached,
        /// The filesystem is mounted so that the kernel replays its journal.
        ReplayMounted,
        /// The journal is replayed, the device not yet gone.
        ReplayUnmounted,
        /// A copy of the image is there, to be checked or grown.
        ReworkCopied,
        /// The copy is checked and grown.
        ReworkDone,
        /// The copy is marked and flushed.
        ReworkMarked,
        /// The copy has the image's place.
        ReworkRenamed,
        /// The state folder has a note of the image, which is not attached yet.
        StageNoted,
        /// The loop device is there.
        StageAttached,
        /// A format is promised.
        StageFormatting,
        /// The filesystem is made.
        StageFormatted,
        /// The filesystem is known to be made.
        StageFormatKept,
        /// The filesystem is mounted.
        StageMounted,
        /// The stage is complete, its caller not yet told.
        StageDone,
        /// The unstage is promised.
        UnstagePromised,
        /// The filesystem is unmounted.
        UnstageUnmounted,
        /// The loop device is gone.
        UnstageDetached,
        /// The note of the attached image is gone.
        UnstageForgotten,
        /// The stage is forgotten, its caller not yet told.
        UnstageDone,
        /// The publication is promised.
        PublishPromised,
        /// The target path is made.
        PublishTargetMade,
        /// The volume is mounted at the target.
        PublishMounted,
        /// The publication is complete, its caller not yet told.
        PublishDone,
        /// The unpublish is promised.
        UnpublishPromised,
        /// The target is unmounted.
        UnpublishUnmounted,
        /// The target path is gone.
        UnpublishTargetGone,
        /// The publication is forgotten, its device not yet detached.
        UnpublishForgotten,
        /// The publication is forgotten, its caller not yet told.
        UnpublishDone,
    }
}
