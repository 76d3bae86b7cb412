//! Laws of sizes that are not a multiple of the driver's granularity.

use tonic::Status;
use wharf_proto::csi;

use super::{Breach, Subject, describe, is_missing};

const LAW: &str = "a volume is at least as large as asked for, and says how large";

impl Subject {
    /// The driver rounds such a size up, on create and on expand, and answers with the resulting
    /// size.
    pub async fn rounds_sizes_up(&self) -> Result<(), Breach> {
        let breach = |status: &Status| Breach::new(LAW, describe(status));
        let request = csi::CreateVolumeRequest {
            capacity_range: range(self.size + 1),
            ..self.volume("law-sizes", self.size)
        };
        let made = match self.controllers().create_volume(request).await {
            Ok(answer) => answer.into_inner().volume.unwrap_or_default(),
            Err(status) if is_missing(&status) => return Ok(()),
            Err(status) => return Err(breach(&status)),
        };
        let kept = match made.capacity_bytes {
            small if small < self.size + 1 => Err(Breach::new(
                LAW,
                format!("{} bytes were asked for, {small} made", self.size + 1),
            )),
            size => self.expands_odd(&made.volume_id, size).await,
        };
        let deleted = self.delete(made.volume_id).await.map_err(|status| breach(&status));
        kept.and(deleted)
    }

    async fn expands_odd(&self, volume: &str, size: i64) -> Result<(), Breach> {
        let request = csi::ControllerExpandVolumeRequest {
            volume_id: volume.to_owned(),
            capacity_range: range(size + 1),
            volume_capability: Some(self.capability.clone()),
            ..Default::default()
        };
        let mut answers = Vec::new();
        for _ in 0..2 {
            match self.controllers().controller_expand_volume(request.clone()).await {
                Ok(answer) => answers.push(answer.into_inner().capacity_bytes),
                Err(status) if is_missing(&status) => return Ok(()),
                Err(status) => return Err(Breach::new(LAW, describe(&status))),
            }
        }
        match answers[..] {
            [grown, again] if grown > size && grown == again => Ok(()),
            _ => Err(Breach::new(
                LAW,
                format!("{} bytes were asked for, the answers were {answers:?}", size + 1),
            )),
        }
    }
}

fn range(required_bytes: i64) -> Option<csi::CapacityRange> {
    Some(csi::CapacityRange { required_bytes, limit_bytes: 0 })
}
