//! Objects of the maximum size: names of 253 characters, and 256 KiB of annotations.

use serde_json::{Value, json};

use crate::fixture::{ATTACHMENTS, Fixture, VOLUMES};

/// The longest name.
pub(crate) fn longest(beginning: &str) -> String {
    format!("{beginning}-{}", "x".repeat(252 - beginning.len()))
}

/// The API's limit for annotations, without those that controllers add.
const MUCH: usize = (256 << 10) - 1024;
const KEY: &str = "example.com/much";

/// Fills an object's annotations.
pub(crate) fn fill(object: &mut Value) {
    object["metadata"]["annotations"][KEY] = json!("x".repeat(MUCH));
}

/// Whether the filling annotations are unchanged.
pub(crate) fn is_filled(object: &Value) -> bool {
    object["metadata"]["annotations"][KEY].as_str().is_some_and(|text| text.len() == MUCH)
}

#[tokio::test]
async fn a_volume_is_attached_whatever_it_is_called() {
    let Some(mut fixture) = Fixture::new("extreme-attach", &[]).await else { return };
    let name = longest("extreme-attach");
    fixture.node().await;
    fixture.pair(&name, fill, fill).await;
    fixture.start();
    let lines = fixture.journal.wait_for(4).await;
    assert!(lines[3].contains("\"attached\":true"), "{lines:?}");
    let attachment = fixture.get_at(&format!("{ATTACHMENTS}/{name}")).await.unwrap();
    let volume = fixture.get_at(&format!("{VOLUMES}/{name}")).await.unwrap();
    assert!(is_filled(&attachment) && is_filled(&volume));
    assert_eq!(attachment["metadata"]["finalizers"], json!([fixture.finalizer()]));
    fixture.stop().await;
}
