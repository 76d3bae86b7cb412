//! The driver keeps the laws, and the laws detect a breach.

use wharf_csi_sdk::laws::{PLANTED_SECRET, Subject};

use crate::{driver::Memory, log::Log, serving::Serving};

const SIZE: i64 = 1 << 20;

#[tokio::test]
async fn all_laws_hold() {
    let serving = Serving::all(&Memory::new().plugin().build().unwrap());
    Subject::new(serving.channel("csi.sock"), SIZE).keeps_all_laws().await.unwrap();
    serving.end().await;
}

#[tokio::test]
async fn no_secret_is_logged() {
    let log = Log::of_process();
    let serving = Serving::all(&Memory::new().plugin().build().unwrap());
    Subject::new(serving.channel("csi.sock"), SIZE).plant_secrets().await.unwrap();
    serving.end().await;
    let text = log.text();
    for rpc in ["CreateVolume", "NodePublishVolume", "NodeStageVolume", "CreateSnapshot"] {
        assert!(text.contains(&format!("method=\"{rpc}\" request=")), "{rpc} is not in\n{text}");
    }
    Subject::check_log(&text).unwrap();
    assert!(Subject::check_log(&format!("a\npassword={PLANTED_SECRET}")).is_err());
}
