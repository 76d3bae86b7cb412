//! Laws of paged lists.

use wharf_proto::csi;

use super::{Breach, Subject, describe, is_missing};

const VOLUMES: usize = 7;
const PAGE: i32 = 2;

impl Subject {
    /// A volume that exists during the whole listing is listed exactly once, even if others are
    /// deleted between two pages.
    pub async fn pages_survive_deletes(&self) -> Result<(), Breach> {
        let breach = |what: String| Breach::new("pages survive deletes", what);
        match self.page(String::new()).await {
            Err(status) if is_missing(&status) => return Ok(()),
            Err(status) => return Err(breach(describe(&status))),
            Ok(_) => {}
        }
        let mut lasting = Vec::new();
        for number in 0..VOLUMES {
            let request = self.volume(&format!("law-page-{number}"), self.size);
            lasting.push(self.create(request).await.map_err(|it| breach(describe(&it)))?);
        }
        let (mut shown, mut token): (Vec<String>, _) = (Vec::new(), String::new());
        loop {
            let (ids, next) = self.page(token).await.map_err(|status| breach(describe(&status)))?;
            if ids.len() > PAGE as usize {
                return Err(breach(format!("a page of {PAGE} has {} entries", ids.len())));
            }
            shown.extend(ids);
            if next.is_empty() {
                break;
            }
            // Delete the last volume shown, which the token may refer to, and one that is not shown
            // yet.
            let is_last = |id: &String| shown.last() == Some(id);
            let later = lasting.iter().rfind(|id| !shown.contains(id)).cloned();
            let (gone, kept): (Vec<_>, Vec<_>) =
                lasting.into_iter().partition(|id| is_last(id) || later.as_ref() == Some(id));
            for id in gone {
                self.delete(id).await.map_err(|status| breach(describe(&status)))?;
            }
            lasting = kept;
            token = next;
        }
        for id in lasting {
            let times = shown.iter().filter(|shown| **shown == id).count();
            if times != 1 {
                return Err(breach(format!("volume {id} is listed {times} times")));
            }
            self.delete(id).await.map_err(|status| breach(describe(&status)))?;
        }
        Ok(())
    }

    async fn page(&self, starting_token: String) -> Result<(Vec<String>, String), tonic::Status> {
        let request = csi::ListVolumesRequest { max_entries: PAGE, starting_token };
        let page = self.controllers().list_volumes(request).await?.into_inner();
        let volumes = page.entries.into_iter().filter_map(|entry| entry.volume);
        Ok((volumes.map(|volume| volume.volume_id).collect(), page.next_token))
    }
}
