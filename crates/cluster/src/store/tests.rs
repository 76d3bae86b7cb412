use std::{sync::Mutex, time::Duration};

use super::*;
use crate::VolumeAttachment;

fn attachment(name: &str, version: u64, volume: &str) -> VolumeAttachment {
    let mut attachment = VolumeAttachment::default();
    attachment.metadata.name = name.to_owned();
    attachment.metadata.resource_version = version.to_string();
    attachment.spec.source.persistent_volume_name = Some(volume.to_owned());
    attachment
}

fn versions(store: &Store<VolumeAttachment>, volume: &str) -> Vec<String> {
    let mut found: Vec<String> = store
        .indexed(VolumeAttachment::BY_VOLUME, volume)
        .iter()
        .map(|it| format!("{}@{}", it.metadata.name, it.metadata.resource_version))
        .collect();
    found.sort();
    found
}

/// Lists these objects to the store.
fn listing<const N: usize>(
    store: &Store<VolumeAttachment>,
    objects: [VolumeAttachment; N],
) -> Listing<VolumeAttachment> {
    let mut listing = Listing::new();
    objects.into_iter().for_each(|object| listing.add(object, store));
    listing
}

#[test]
fn an_index_follows_its_objects() {
    let store = Store::new(|_| true);
    store.show(attachment("a", 1, "x"));
    store.show(attachment("b", 2, "x"));
    assert_eq!(versions(&store, "x"), ["a@1", "b@2"]);
    store.show(attachment("a", 3, "y"));
    assert_eq!(versions(&store, "x"), ["b@2"]);
    assert_eq!(versions(&store, "y"), ["a@3"]);
    store.delete(&attachment("b", 4, "x"));
    assert!(!store.is_indexed(VolumeAttachment::BY_VOLUME, "x"));
}

#[test]
fn an_answer_is_not_turned_back_by_an_earlier_event() {
    let store = Store::new(|_| true);
    store.show(attachment("a", 1, "x"));
    store.observe(attachment("a", 5, "x"));
    store.show(attachment("a", 3, "x"));
    assert_eq!(versions(&store, "x"), ["a@5"]);
    store.show(attachment("a", 6, "x"));
    assert_eq!(versions(&store, "x"), ["a@6"]);
}

#[test]
fn an_answer_does_not_bring_back_what_was_deleted() {
    let store = Store::new(|_| true);
    store.show(attachment("a", 1, "x"));
    store.delete(&attachment("a", 3, "x"));
    store.observe(attachment("a", 2, "x"));
    assert_eq!(versions(&store, "x"), [""; 0]);
    store.observe(attachment("b", 4, "x"));
    assert_eq!(versions(&store, "x"), ["b@4"], "newer than all that was seen");
}

#[tokio::test]
async fn a_list_takes_out_what_it_does_not_show_but_not_what_is_newer() {
    let store = Store::new(|_| true);
    store.show(attachment("gone", 1, "x"));
    store.show(attachment("stays", 2, "x"));
    store.observe(attachment("newer", 9, "x"));
    store.settle(0, listing(&store, [attachment("stays", 2, "x")]), Some(5));
    assert_eq!(versions(&store, "x"), ["newer@9", "stays@2"]);
    store.synced().await;
}

#[test]
fn a_list_knows_better_than_what_was_seen_before_it() {
    let store = Store::new(|_| true);
    for name in ["undone", "written", "changed", "gone", "deleted"] {
        store.show(attachment(name, 7, "x"));
    }
    // Restored from a backup of version 4; etcd was configured to continue at version 10.
    let states = [("undone", 3), ("written", 4), ("changed", 1), ("deleted", 2), ("changed", 10)];
    let mut restored =
        listing(&store, states.map(|(name, version)| attachment(name, version, "x")));
    let deleted = attachment("deleted", 11, "x");
    restored.remove(&deleted);
    store.delete(&deleted);
    store.observe(attachment("written", 12, "x"));
    store.settle(0, restored, Some(11));
    assert_eq!(versions(&store, "x"), ["changed@10", "undone@3", "written@12"]);
}

#[test]
fn where_versions_went_back_a_list_is_all_there_is() {
    let store = Store::new(|_| true);
    store.show(attachment("undone", 7, "x"));
    store.show(attachment("gone", 8, "x"));
    store.settle(0, listing(&store, [attachment("undone", 3, "x")]), Some(5));
    assert_eq!(versions(&store, "x"), ["undone@3"]);
    store.observe(attachment("gone", 5, "x"));
    assert_eq!(versions(&store, "x"), ["undone@3"], "the list is as new as that, and without it");
    store.observe(attachment("new", 6, "x"));
    assert_eq!(versions(&store, "x"), ["new@6", "undone@3"]);
}

#[test]
fn what_is_declined_never_enters_and_leaves_when_it_becomes_so() {
    let store = Store::new(|it: &mut VolumeAttachment| {
        it.spec.source.persistent_volume_name.as_deref() != Some("foreign")
    });
    store.show(attachment("a", 1, "foreign"));
    assert!(store.all().is_empty());
    store.show(attachment("a", 2, "x"));
    store.show(attachment("a", 3, "foreign"));
    assert!(store.all().is_empty());
}

#[test]
fn subscribers_see_all_that_is_there_and_each_change_until_they_go() {
    let store = Store::new(|_| true);
    store.show(attachment("a", 1, "x"));
    let told = Arc::new(Mutex::new(Vec::new()));
    let version = |object: Option<&Arc<VolumeAttachment>>| {
        object.map_or("-".to_owned(), |it| it.metadata.resource_version.clone())
    };
    let subscription = store.subscribe({
        let (told, reader) = (Arc::clone(&told), Arc::downgrade(&store));
        move |change| {
            let here = reader.upgrade().unwrap().get(change.key).is_some();
            let text =
                format!("{} {}>{} {here}", change.key, version(change.old), version(change.new));
            told.lock().unwrap().push(text);
        }
    });
    store.show(attachment("a", 2, "x"));
    store.show(attachment("b", 3, "x"));
    store.delete(&attachment("a", 4, "x"));
    drop(subscription);
    store.delete(&attachment("b", 5, "x"));
    let expected = ["a ->1 true", "a 1>2 true", "b ->3 true", "a 2>- false"];
    assert_eq!(*told.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_was_begun_before_another_was_asked_for_does_not_count() {
    let store = Store::<VolumeAttachment>::new(|_| true);
    let is_synced =
        async || tokio::time::timeout(Duration::from_secs(1), store.synced()).await.is_ok();
    assert!(!is_synced().await);
    store.settle(store.asked(), Listing::new(), Some(1));
    assert!(is_synced().await);
    let before = store.asked();
    store.renew();
    store.asked_beyond(before).await;
    store.settle(before, Listing::new(), Some(2));
    assert!(!is_synced().await);
    store.settle(store.asked(), Listing::new(), Some(3));
    assert!(is_synced().await);
}
