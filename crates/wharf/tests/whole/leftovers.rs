//! Checks that nothing is left of deleted objects.

use anyhow::Result;
use sha2::{Digest, Sha256};
use wharf_mount::{loopdev, mountinfo};
use wharf_testkit::process::wait_for;

use crate::{
    node::PoolView,
    objects::Made,
    rig::PATIENCE,
    world::{ATTACHMENT, CONTENT, VOLUME, World},
};

impl World {
    /// Waits until deleted volumes and snapshots have left nothing: no object, no image, no loop
    /// device and no mount.
    pub(crate) async fn nothing_left(&self, made: &[Made]) -> Result<()> {
        for it in made {
            self.gone(VOLUME, &it.name).await?;
            self.gone(CONTENT, &it.name).await?;
        }
        let clean = wait_for(PATIENCE, "the last traces to go", || async {
            self.left(made).await.ok()?.is_empty().then_some(())
        });
        match clean.await {
            Err(error) => Err(error.context(format!("{:?}", self.left(made).await?))),
            clean => clean,
        }
    }

    /// Waits until a volume is on no node, so that what follows does not meet its detachment.
    pub(crate) async fn detached(&self, made: &Made) -> Result<()> {
        let made = std::slice::from_ref(made);
        wait_for(PATIENCE, "its detachment", || async {
            self.attached(made).await.ok()?.is_empty().then_some(())
        })
        .await
    }

    async fn attached(&self, made: &[Made]) -> Result<Vec<String>> {
        let attachments = self.list(ATTACHMENT).await?;
        let volumes = attachments
            .iter()
            .filter_map(|it| it["spec"]["source"]["persistentVolumeName"].as_str())
            .filter(|volume| made.iter().any(|it| it.name == *volume));
        Ok(volumes.map(str::to_owned).collect())
    }

    async fn left(&self, made: &[Made]) -> Result<Vec<String>> {
        let attached = self.attached(made).await?;
        let mut left: Vec<_> =
            attached.iter().map(|volume| format!("VolumeAttachment of {volume}")).collect();
        self.left_in_pool(made, &mut left).await?;
        for mount in mountinfo::table()? {
            let point = mount.point.display().to_string();
            if made.iter().any(|it| point.contains(&it.name) || point.contains(&stage(&it.id))) {
                left.push(format!("mount at {point}"));
            }
        }
        Ok(left)
    }

    /// Images have names of their own: no record, and as many images as records, is no image.
    async fn left_in_pool(&self, made: &[Made], left: &mut Vec<String>) -> Result<()> {
        let driver = &self.rig.driver;
        let rows = driver.rows().await?;
        let files = driver.files();
        if files.len() != rows.len() {
            left.push(format!("images {files:?} of {rows:?}"));
        }
        for row in rows {
            if made.iter().any(|it| it.id == row.id) {
                left.push(format!("record {row:?}"));
            }
        }
        for status in loopdev::list()? {
            if status.loopdev.backing.starts_with(driver.images().join("volumes"))
                && !status.loopdev.backing.exists()
            {
                left.push(format!("loop device of {}", status.loopdev.backing.display()));
            }
        }
        Ok(())
    }
}

/// The folder that the kubelet stages a volume in.
fn stage(id: &str) -> String {
    let digest = Sha256::digest(id);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
