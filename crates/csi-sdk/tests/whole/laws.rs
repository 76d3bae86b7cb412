//! The laws hold, and the laws can tell.

use wharf_csi_sdk::laws::{PLANTED_SECRET, Subject};

use crate::driver::Memory;
use crate::log::Log;
use crate::serving::Serving;

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
        assert!(text.contains(&format!("rpc=\"{rpc}\" request=")), "{rpc} is not in\n{text}");
    }
    Subject::check_log(&text).unwrap();
    assert!(Subject::check_log(&format!("a\npassword={PLANTED_SECRET}")).is_err());
}
