//! Claims that are larger than the free space.

use anyhow::Result;
use wharf_testkit::process::wait_for;

use crate::{
    objects::claim,
    rig::PATIENCE,
    world::{CLAIM, World, has},
};

/// The scheduler knows from the provisioner how much room there is, and people are told what it
/// says.
#[tokio::test]
async fn a_claim_larger_than_the_pool_waits_for_the_scheduler() -> Result<()> {
    let Some(world) = World::new("room").await? else { return Ok(()) };
    world.create(CLAIM, "large", claim("local", "100Gi")).await?;
    world.run("user", "large", "true").await?;
    let told = wait_for(PATIENCE, "the scheduler to find no room", || async {
        world.why("large").await.ok().filter(|told| told.contains("enough free storage"))
    });
    let told = told.await?;
    has(&told, &["claim room/large: Pending", "its pod user has no node yet", "kube-scheduler"])?;
    has(&world.status(&[]).await?, &["claim room/large", "Pending", "kube-scheduler"])?;
    world.end().await
}
