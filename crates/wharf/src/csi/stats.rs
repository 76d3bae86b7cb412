use clap::Args;
use wharf_proto::csi::NodeGetVolumeStatsRequest;

use super::{
    failure::Failure,
    need::{Need, NodeRpc},
    report::{Column, Report},
    session::Session,
};

const USAGE: &[Column] =
    &[("UNIT", "/unit"), ("TOTAL", "/total"), ("USED", "/used"), ("AVAILABLE", "/available")];

/// Shows the used and free space of a volume (NodeGetVolumeStats)
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi stats ID --path /mnt/data")]
pub(crate) struct Stats {
    /// The volume_id
    id: String,
    /// The volume_path: where it is mounted or staged
    #[arg(long, value_name = "PATH")]
    path: String,
    /// The staging_target_path, where the volume was staged
    #[arg(long, value_name = "DIR", default_value = "", hide_default_value = true)]
    staging: String,
}

impl Stats {
    pub(crate) async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "NodeGetVolumeStats";
        session.require(rpc, &[Need::Node(NodeRpc::GetVolumeStats)]).await?;
        let request = NodeGetVolumeStatsRequest {
            volume_id: self.id,
            volume_path: self.path,
            staging_target_path: self.staging,
        };
        let answer = session
            .call(rpc, request, async |request| {
                session.driver.node().node_get_volume_stats(request).await
            })
            .await?;
        let report = Report::of(rpc, &answer).rows("/usage", "The driver reports no usage.", USAGE);
        Ok(match answer.volume_condition {
            Some(condition) if condition.abnormal => {
                report.note(format!("The volume is abnormal: {}", condition.message))
            }
            _ => report,
        })
    }
}
