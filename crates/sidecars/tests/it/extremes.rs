//! Objects as large as the API takes them: names of 253 characters, and 256 KiB of annotations.

use serde_json::{Value, json};

use crate::bench::{ATTACHMENTS, Bench, VOLUMES};

/// As long as a name may be.
pub(crate) fn longest(beginning: &str) -> String {
    format!("{beginning}-{}", "x".repeat(252 - beginning.len()))
}

/// As many bytes of annotations as the API takes, but for what controllers add themselves.
const MUCH: usize = (256 << 10) - 1024;
const KEY: &str = "example.com/much";

/// Fills an object's annotations.
pub(crate) fn fill(object: &mut Value) {
    object["metadata"]["annotations"][KEY] = json!("x".repeat(MUCH));
}

/// Whether nobody has touched what filled it.
pub(crate) fn is_filled(object: &Value) -> bool {
    object["metadata"]["annotations"][KEY].as_str().is_some_and(|text| text.len() == MUCH)
}

#[tokio::test]
async fn a_volume_is_attached_whatever_it_is_called() {
    let Some(mut bench) = Bench::new("extreme-attach", &[]).await else { return };
    let name = longest("extreme-attach");
    bench.node().await;
    bench.pair(&name, fill, fill).await;
    bench.start();
    let lines = bench.journal.wait_for(4).await;
    assert!(lines[3].contains("\"attached\":true"), "{lines:?}");
    let attachment = bench.get_at(&format!("{ATTACHMENTS}/{name}")).await.unwrap();
    let volume = bench.get_at(&format!("{VOLUMES}/{name}")).await.unwrap();
    assert!(is_filled(&attachment) && is_filled(&volume));
    assert_eq!(attachment["metadata"]["finalizers"], json!([bench.finalizer()]));
    bench.stop().await;
}
