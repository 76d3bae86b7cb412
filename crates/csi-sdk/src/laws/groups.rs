//! Laws of group snapshots.

use tonic::{Code, Status};
use wharf_proto::{csi, csi::group_controller_client::GroupControllerClient};

use super::{Breach, Subject, describe, is_missing};

const LAW: &str = "a group is deleted with all its snapshot_ids or not at all";

impl Subject {
    /// DeleteVolumeGroupSnapshot of an existing group is refused without `snapshot_ids`: the SDK
    /// locks the listed snapshots, so an unlisted member could be deleted while a volume is
    /// restored from it.
    pub async fn deletes_groups_by_their_members(&self) -> Result<(), Breach> {
        let breach = |status: &Status| Breach::new(LAW, describe(status));
        let source = match self.create(self.volume("law-group", self.size)).await {
            Ok(id) => id,
            Err(status) if is_missing(&status) => return Ok(()),
            Err(status) => return Err(breach(&status)),
        };
        let kept = self.cut_and_delete_group(&source).await;
        let deleted = self.delete(source).await.map_err(|status| breach(&status));
        kept.and(deleted)
    }

    async fn cut_and_delete_group(&self, source: &str) -> Result<(), Breach> {
        let breach = |status: &Status| Breach::new(LAW, describe(status));
        let mut client = GroupControllerClient::new(self.controller.clone());
        let request = csi::CreateVolumeGroupSnapshotRequest {
            name: "law-group".to_owned(),
            source_volume_ids: vec![source.to_owned()],
            ..Default::default()
        };
        let group = match client.create_volume_group_snapshot(request).await {
            Ok(answer) => answer.into_inner().group_snapshot.unwrap_or_default(),
            Err(status) if is_missing(&status) => return Ok(()),
            Err(status) => return Err(breach(&status)),
        };
        let without = csi::DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: group.group_snapshot_id,
            ..Default::default()
        };
        let with = csi::DeleteVolumeGroupSnapshotRequest {
            snapshot_ids: group.snapshots.into_iter().map(|member| member.snapshot_id).collect(),
            ..without.clone()
        };
        let refused = client.delete_volume_group_snapshot(without).await;
        client.delete_volume_group_snapshot(with).await.map_err(|status| breach(&status))?;
        match refused {
            Err(status)
                if status.code() == Code::InvalidArgument
                    && status.message().contains("snapshot_ids") =>
            {
                Ok(())
            }
            Err(status) => Err(breach(&status)),
            Ok(_) => Err(Breach::new(LAW, "a group was deleted without snapshot_ids")),
        }
    }
}
