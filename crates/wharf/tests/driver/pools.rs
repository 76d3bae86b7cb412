//! Several pools on a node, and pools whose disk is missing.

mod attach_limit;
mod configured;
mod copies;
mod dead;
mod foreign;
mod hung;
mod hung_mount;
mod image;
mod notes;
mod opening;
mod orphans;
mod strange_loop;

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::PathBuf,
};

use tokio::task::JoinSet;
use tonic::{Code, Status};
use wharf_mount::{loopdev, mount};
use wharf_proto::csi;
use wharf_testkit::process::wait_for;

pub(crate) use configured::configure;

use crate::{
    bench::{Bench, MIB, PoolKind},
    bytes::{bytes, checksum, checksum_of, write},
    client::{Client, Usage, from_snapshot, from_volume, map, mounted, text, volume},
    codes::refused,
    full::mount_pool,
    running::{PATIENCE, Running},
};

const SIZE: u64 = 16 * MIB;
const DATA: u64 = MIB;

/// A bench with a second pool, `fast`.
fn two_pools(kind: PoolKind) -> Option<Bench> {
    let bench = Bench::new(kind)?;
    let fast = format!("fast={}", text(&bench.path("fast")));
    Some(bench.flag("--pool", fast))
}

fn on_pool(pool: &str, request: csi::CreateVolumeRequest) -> csi::CreateVolumeRequest {
    csi::CreateVolumeRequest { parameters: map(&[("pool", pool)]), ..request }
}

async fn made_on(bench: &Bench, driver: &Running, pool: &str, name: &str) -> Result<Usage, Status> {
    let made = driver.create(on_pool(pool, volume(name, SIZE, mounted("")))).await?;
    Ok(Usage::new(bench, name, &made.volume_id, mounted("")))
}

/// Writes into a volume, and takes it from the node again.
async fn fill(driver: &Running, usage: &Usage) -> String {
    let data = bytes(7, DATA);
    driver.bring_up(usage).await.unwrap();
    write(&usage.file("data"), &data);
    driver.take_down(usage).await.unwrap();
    checksum(&data)
}

fn pool_of<'a>(rows: &'a [wharf_driver::inspect::Row], id: &str) -> &'a str {
    &rows.iter().find(|row| row.id == id).unwrap().pool
}

fn rows(bench: &Bench) -> Vec<wharf_driver::inspect::Row> {
    let output = bench.driver_command("ls", &["--output", "json"]);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The driver's `/readyz`: its code and text.
fn readyz(driver: &Running) -> (u16, String) {
    get(driver, "/readyz")
}

/// What the driver's HTTP endpoint answers.
fn get(driver: &Running, path: &str) -> (u16, String) {
    let log = driver.log();
    let line = log.lines().rev().find(|line| line.contains("serving /healthz")).unwrap();
    let address = line.split("127.0.0.1:").nth(1).unwrap();
    let port: String = address.chars().take_while(char::is_ascii_digit).collect();
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

async fn is_served(driver: &Running) {
    wait_for(PATIENCE, "the pool to be served", async || {
        driver.storage_health().await.unwrap().is_empty().then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_picks_a_pool_and_without_one_it_is_the_default() {
    let Some(bench) = two_pools(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let a = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
    let b = made_on(&bench, &driver, "fast", "b").await.unwrap();
    assert!(bench.path("pool/volumes").read_dir().unwrap().count() == 1);
    assert!(bench.path("fast/volumes").read_dir().unwrap().count() == 1);
    let listed = rows(&bench);
    assert_eq!((pool_of(&listed, &a), pool_of(&listed, &b.id)), ("default", "fast"));
    let mut ids = vec![a.clone(), b.id.clone()];
    ids.sort();
    assert_eq!(driver.list().await.unwrap(), ids);

    // The name is the driver's, not the pool's.
    let taken = made_on(&bench, &driver, "fast", "a").await.map(|it| it.id);
    refused("the same name on another pool", taken, Code::AlreadyExists);
    let unknown = made_on(&bench, &driver, "slow", "c").await.map(|it| it.id);
    let text = refused("an unknown pool", unknown, Code::InvalidArgument);
    assert!(text.contains("parameters.pool: expected one of default, fast"), "{text}");
    let together = driver.group("g", &[&a, &b.id]).await;
    let text = refused("a group of two pools", together, Code::FailedPrecondition);
    assert!(text.contains("one pool"), "{text}");

    let sum = fill(&driver, &b).await;
    driver.kill().await;
    let driver = bench.start().await;
    driver.bring_up(&b).await.unwrap();
    assert_eq!(checksum_of(&b.file("data"), DATA), sum);
    let snapshot = driver.snapshot("s", &b.id).await.unwrap().snapshot_id;
    assert_eq!(pool_of(&rows(&bench), &snapshot), "fast");
    driver.take_down(&b).await.unwrap();
    driver.delete_snapshot(&snapshot).await.unwrap();
    driver.delete(&b.id).await.unwrap();
    driver.delete(&a).await.unwrap();
    driver.stop().await;
    assert_eq!(bench.path("fast/volumes").read_dir().unwrap().count(), 0);
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn capacity_and_limits_are_of_the_pool_and_the_node() {
    let Some(bench) = two_pools(PoolKind::Copy) else { return };
    let bench = bench.flag("--attach-limit", "1");
    mount_pool(&bench);
    let driver = bench.start().await;
    let default = driver.capacity().await.unwrap();
    assert!(default < 512 * MIB, "{default}");
    let fast = driver.capacity_of(&[("pool", "fast")]).await.unwrap().available_capacity;
    assert!(u64::try_from(fast).unwrap() > default, "{fast}");
    let unknown = driver.capacity_of(&[("pool", "slow")]).await;
    refused("capacity of an unknown pool", unknown, Code::InvalidArgument);

    // The node's limit holds for both pools together.
    let a = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
    let a = Usage::new(&bench, "a", &a, mounted(""));
    let b = made_on(&bench, &driver, "fast", "b").await.unwrap();
    driver.attach(&a).await.unwrap();
    refused("one more", driver.attach(&b).await, Code::ResourceExhausted);
    driver.detach(&a.id).await.unwrap();
    driver.attach(&b).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_a_node_holds_for_calls_on_two_pools_at_once() {
    const LIMIT: usize = 5;
    let Some(bench) = two_pools(PoolKind::Copy) else { return };
    let bench = bench.flag("--attach-limit", LIMIT.to_string());
    let driver = bench.start().await;
    let mut attaching = JoinSet::new();
    for number in 0..8 {
        for pool in ["default", "fast"] {
            let name = format!("{pool}-{number}");
            let usage = made_on(&bench, &driver, pool, &name).await.unwrap();
            let client = Client::new(&bench.socket());
            attaching.spawn(async move { client.attach(&usage).await.map_err(|it| it.code()) });
        }
    }
    let answers = attaching.join_all().await;
    let attached = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(attached, LIMIT, "{answers:?}");
    let full = Err(Code::ResourceExhausted);
    assert!(answers.iter().all(|answer| answer.is_ok() || *answer == full), "{answers:?}");
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_picks_the_pool_of_its_inline_volume() {
    let Some(bench) = two_pools(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let mut inline = Usage::new(&bench, "inline", "csi-inline", mounted(""));
    inline.staging = PathBuf::new();
    let ephemeral = (wharf_facts::context::EPHEMERAL, "true");
    inline.context = map(&[ephemeral, ("size", "16Mi"), ("pool", "fast")]);
    driver.publish(&inline).await.unwrap();
    assert_eq!(pool_of(&rows(&bench), "csi-inline"), "fast");
    driver.unpublish(&inline).await.unwrap();
    assert_eq!(rows(&bench), []);
    inline.context = map(&[ephemeral, ("size", "16Mi"), ("pool", "slow")]);
    let text = refused("no such pool", driver.publish(&inline).await, Code::InvalidArgument);
    assert!(text.contains("volume_context.pool"), "{text}");
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_folder_is_not_served_in_place_of_a_pool_whose_disk_is_missing() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let bench = bench.flag("--http-endpoint", "127.0.0.1:0");
    mount_pool(&bench);
    let driver = bench.start().await;
    let id = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
    let usage = Usage::new(&bench, "a", &id, mounted(""));
    let sum = fill(&driver, &usage).await;
    assert_eq!(readyz(&driver).0, 200);
    driver.stop().await;
    mount::unmount(&bench.pool()).unwrap();

    let driver = bench.start().await;
    let says = |what: &str, answer: Result<(), Status>| {
        let text = refused(what, answer, Code::Unavailable);
        assert!(text.contains(&format!("mount its disk at {}", text_of(&bench))), "{text}");
    };
    says("stage", driver.stage(&usage).await);
    says("delete", driver.delete(&id).await);
    says("create", driver.create(volume("b", SIZE, mounted(""))).await.map(drop));
    says("unknown id", driver.delete("vol-of-an-older-release").await);
    assert_eq!(driver.capacity().await.unwrap(), 0);
    assert_eq!(driver.storage_health().await.unwrap(), ["StorageUnreachable PoolMissing"]);
    let (code, answer) = readyz(&driver);
    assert!(code == 503 && answer.contains("mount its disk"), "{code} {answer}");
    // Nothing was written where the disk should be.
    assert_eq!(bench.pool().read_dir().unwrap().count(), 0);

    mount_pool(&bench);
    is_served(&driver).await;
    assert_eq!(readyz(&driver).0, 200);
    driver.bring_up(&usage).await.unwrap();
    assert_eq!(checksum_of(&usage.file("data"), DATA), sum);
    driver.take_down(&usage).await.unwrap();
    driver.delete(&id).await.unwrap();
    driver.stop().await;
}

fn text_of(bench: &Bench) -> String {
    text(&bench.pool())
}

#[tokio::test(flavor = "multi_thread")]
async fn other_pools_work_on_while_one_is_missing() {
    let Some(bench) = two_pools(PoolKind::Copy) else { return };
    mount_pool(&bench);
    let driver = bench.start().await;
    let a = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
    let b = made_on(&bench, &driver, "fast", "b").await.unwrap();
    driver.stop().await;
    mount::unmount(&bench.pool()).unwrap();

    let driver = bench.start().await;
    fill(&driver, &b).await;
    refused("on the missing pool", driver.delete(&a).await, Code::Unavailable);
    refused("an id without a pool", driver.delete("vol-old").await, Code::Unavailable);
    // An id that names another pool than the missing one is known not to exist.
    let gone = made_on(&bench, &driver, "fast", "c").await.unwrap();
    driver.delete(&gone.id).await.unwrap();
    driver.delete(&gone.id).await.unwrap();
    refused("gone", driver.stage(&gone).await, Code::NotFound);
    driver.take_down(&gone).await.unwrap();
    let listed = driver.list().await.unwrap();
    assert_eq!(listed, std::slice::from_ref(&b.id));
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_disk_is_adopted_or_forgotten_by_a_person_only() {
    let Some(bench) = two_pools(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let lost = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
    let b = made_on(&bench, &driver, "fast", "b").await.unwrap();
    let output = bench.driver_command("adopt", &["default"]);
    assert!(!output.status.success(), "a pool that is served: {output:?}");
    driver.stop().await;
    fs::rename(bench.pool(), bench.path("lost")).unwrap();
    fs::create_dir(bench.pool()).unwrap();

    let driver = bench.start().await;
    refused("before", driver.delete(&lost).await, Code::Unavailable);
    let output = bench.driver_command("adopt", &["default"]);
    assert!(output.status.success(), "{output:?}");
    driver.delete(&lost).await.unwrap();
    driver.create(volume("new", SIZE, mounted(""))).await.unwrap();
    driver.stop().await;

    // A pool that is no longer configured still has its volumes, until it is forgotten.
    let alone = Bench::command(&bench, &[]);
    let arguments: Vec<_> = alone.get_args().map(std::ffi::OsStr::to_owned).collect();
    let fast = arguments.iter().position(|it| it.to_string_lossy().starts_with("fast=")).unwrap();
    let mut command = std::process::Command::new(alone.get_program());
    command.args(&arguments[..fast - 1]).args(&arguments[fast + 1..]);
    let driver = Running::start(&command, &bench.path(""), &bench.socket()).await.unwrap();
    let text = refused("not configured", driver.delete(&b.id).await, Code::Unavailable);
    assert!(text.contains("wharf driver pool forget fast"), "{text}");
    let output = bench.driver_command("forget", &["fast"]);
    assert!(output.status.success(), "{output:?}");
    driver.delete(&b.id).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_image_is_mounted_also_where_no_flag_asks_for_one() {
    let Some(bench) = Bench::new(PoolKind::Reflink(512)) else { return };
    let driver = bench.start().await;
    let id = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
    let usage = Usage::new(&bench, "a", &id, mounted(""));
    let sum = fill(&driver, &usage).await;
    driver.stop().await;
    bench.reboot();
    // As by an operator who forgot --pool-image, with and without what the driver remembers.
    for remembered in [true, false] {
        if !remembered {
            fs::remove_dir_all(bench.path("state")).unwrap();
        }
        let command = bench.command(&[]);
        let arguments: Vec<_> = command.get_args().map(std::ffi::OsStr::to_owned).collect();
        let flag = arguments.iter().position(|it| it == "--pool-image").unwrap();
        let mut command = std::process::Command::new(command.get_program());
        command.args(&arguments[..flag]).args(&arguments[flag + 2..]);
        let driver = Running::start(&command, &bench.path(""), &bench.socket()).await.unwrap();
        driver.bring_up(&usage).await.unwrap();
        assert_eq!(checksum_of(&usage.file("data"), DATA), sum);
        driver.take_down(&usage).await.unwrap();
        driver.stop().await;
        bench.reboot();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_mount_in_the_place_of_a_pool_image_is_refused() {
    let Some(bench) = Bench::new(PoolKind::Reflink(512)) else { return };
    let driver = bench.start().await;
    driver.create(volume("a", SIZE, mounted(""))).await.unwrap();
    driver.stop().await;
    bench.reboot();
    let (other, point) = (bench.path("other"), bench.pool().join("pool"));
    fs::create_dir(&other).unwrap();
    mount::bind(&other, &point, false).unwrap();
    let output = bench.command(&[]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("something else"), "{said}");
    mount::unmount(&point).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_of_an_unknown_format_or_a_copy_of_a_pool_is_not_served() {
    let Some(bench) = two_pools(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    driver.create(volume("a", SIZE, mounted(""))).await.unwrap();
    driver.stop().await;
    let file = bench.path("fast/pool.json");
    let good = fs::read_to_string(&file).unwrap();
    fs::write(&file, r#"{"format":99}"#).unwrap();
    let driver = bench.start().await;
    let refusal = made_on(&bench, &driver, "fast", "b").await.map(|it| it.id);
    let said = refused("format 99", refusal, Code::Unavailable);
    // An id of a pool that is served is not looked for on one that is not, whatever that is.
    let gone = driver.create(volume("gone", SIZE, mounted(""))).await.unwrap().volume_id;
    driver.delete(&gone).await.unwrap();
    driver.delete(&gone).await.unwrap();
    assert!(said.contains("pool.json") && said.contains("format 99"), "{said}");
    fs::write(&file, good).unwrap();
    is_served(&driver).await;
    driver.stop().await;

    // A copy of the pool, as by `cp -a`, under a new name.
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([bench.pool(), bench.path("copy")])
        .status();
    assert!(copied.unwrap().success());
    let copy = format!("copy={}", text(&bench.path("copy")));
    let bench = bench.flag("--pool", copy);
    let driver = bench.start().await;
    let refusal = made_on(&bench, &driver, "copy", "b").await.map(|it| it.id);
    let text = refused("a copy", refusal, Code::Unavailable);
    assert!(text.contains("which is the pool default"), "{text}");
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_unmounted_under_the_driver_takes_no_new_volumes() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    mount_pool(&bench);
    let driver = bench.start().await;
    let id = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
    let usage = Usage::new(&bench, "a", &id, mounted(""));
    driver.bring_up(&usage).await.unwrap();
    let image = bench.rows()[0].image.file_name().unwrap().to_owned();
    mount::lazy_unmount(&bench.pool()).unwrap();
    let text = refused("delete", driver.delete(&id).await, Code::Unavailable);
    assert!(text.contains("no longer shows the disk"), "{text}");
    let create = driver.create(volume("b", SIZE, mounted(""))).await.map(drop);
    refused("create", create, Code::Unavailable);
    assert_eq!(driver.capacity().await.unwrap(), 0);
    driver.detach(&id).await.unwrap();
    // What is mounted can be taken down, with its device.
    driver.take_down(&usage).await.unwrap();
    let left = loopdev::list().unwrap().into_iter().map(|status| status.loopdev.backing);
    assert!(!left.into_iter().any(|backing| backing.ends_with(&image)), "a loop device is left");
    assert_eq!(bench.pool().read_dir().unwrap().count(), 0);
    driver.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_is_put_in_the_place_of_a_pool_is_not_used() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let id = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
    fs::rename(bench.pool(), bench.path("aside")).unwrap();
    fs::create_dir(bench.pool()).unwrap();
    let text = refused("delete", driver.delete(&id).await, Code::Unavailable);
    assert!(text.contains("no longer shows"), "{text}");
    let create = driver.create(volume("b", SIZE, mounted(""))).await.map(drop);
    refused("create", create, Code::Unavailable);
    fs::remove_dir(bench.pool()).unwrap();
    fs::rename(bench.path("aside"), bench.pool()).unwrap();
    driver.delete(&id).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn disks_in_each_others_place_are_neither_served_nor_adopted() {
    let Some(bench) = two_pools(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let id = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
    driver.stop().await;
    let (one, two, aside) = (bench.pool(), bench.path("fast"), bench.path("aside"));
    let swap = || {
        fs::rename(&one, &aside).unwrap();
        fs::rename(&two, &one).unwrap();
        fs::rename(&aside, &two).unwrap();
    };
    swap();
    let driver = bench.start().await;
    for name in ["default", "fast"] {
        let output = bench.driver_command("adopt", &[name]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("mount each disk"), "{said}");
    }
    refused("delete", driver.delete(&id).await, Code::Unavailable);
    swap();
    is_served(&driver).await;
    driver.delete(&id).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_pool_is_not_served_beside_it() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let copy = bench.path("copy");
    let bench = bench.flag("--pool", format!("copy={}", text(&copy)));
    let driver = bench.start_with(&[]).await;
    let id = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
    let usage = Usage::new(&bench, "a", &id, mounted(""));
    driver.stop().await;
    fs::remove_dir_all(&copy).unwrap();
    let copied = std::process::Command::new("cp").arg("-a").args([&bench.pool(), &copy]).status();
    assert!(copied.unwrap().success());
    // Without an identity the copy looks like a pool of an older release.
    fs::remove_file(copy.join("pool.json")).unwrap();
    let forgotten = fs::remove_file(bench.path("state/local.csi.wharf/pools/copy.json"));
    forgotten.unwrap();

    let driver = bench.start().await;
    let sum = fill(&driver, &usage).await;
    let output = bench.driver_command("adopt", &["copy"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("one is a copy of the other"), "{said}");
    assert_eq!(driver.list().await.unwrap(), std::slice::from_ref(&id));
    driver.bring_up(&usage).await.unwrap();
    assert_eq!(checksum_of(&usage.file("data"), DATA), sum);
    driver.take_down(&usage).await.unwrap();
    driver.delete(&id).await.unwrap();
    driver.stop().await;
    assert_eq!(copy.join("volumes").read_dir().unwrap().count(), 1, "the copy was changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_was_copied_to_a_disk_that_cannot_share_blocks_works_on() {
    let Some(xfs) = Bench::new(PoolKind::Reflink(512)) else { return };
    let driver = xfs.start().await;
    let id = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
    let sum = fill(&driver, &Usage::new(&xfs, "a", &id, mounted(""))).await;
    let old = driver.snapshot("old", &id).await.unwrap().snapshot_id;
    driver.stop().await;
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let mut copy = std::process::Command::new("cp");
    copy.arg("-a").args([xfs.images(), bench.pool()]);
    assert!(copy.status().unwrap().success());

    let driver = bench.start().await;
    let new = driver.snapshot("new", &id).await.unwrap().snapshot_id;
    for (name, source) in [
        ("old-copy", from_snapshot(&old)),
        ("new-copy", from_snapshot(&new)),
        ("clone", from_volume(&id)),
    ] {
        let request = volume(name, SIZE, mounted(""));
        let request = csi::CreateVolumeRequest { volume_content_source: source, ..request };
        let made = driver.create(request).await.unwrap();
        let usage = Usage::new(&bench, name, &made.volume_id, mounted(""));
        driver.bring_up(&usage).await.unwrap();
        assert_eq!(checksum_of(&usage.file("data"), DATA), sum, "{name}");
        driver.take_down(&usage).await.unwrap();
        driver.delete(&usage.id).await.unwrap();
    }
    for snapshot in [old, new] {
        driver.delete_snapshot(&snapshot).await.unwrap();
    }
    driver.delete(&id).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}

/// A pool that lost its `pool.json` gets another UUID, and keeps the ids of its volumes.
#[tokio::test(flavor = "multi_thread")]
async fn volumes_with_an_older_uuid_of_their_pool_are_unavailable_while_its_disk_is_missing() {
    let Some(bench) = two_pools(PoolKind::Copy) else { return };
    mount_pool(&bench);
    let driver = bench.start().await;
    let id = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
    let usage = Usage::new(&bench, "a", &id, mounted(""));
    let snapshot = driver.snapshot("s", &id).await.unwrap().snapshot_id;
    driver.stop().await;
    fs::remove_file(bench.pool().join("pool.json")).unwrap();
    let driver = bench.start().await;
    let output = bench.driver_command("adopt", &["default"]);
    assert!(output.status.success(), "{output:?}");
    let new = driver.create(volume("new", SIZE, mounted(""))).await.unwrap().volume_id;
    assert_ne!(new.split('-').nth(1), id.split('-').nth(1), "the pool has another UUID");
    // What the driver remembers besides stays when the pool is drained.
    for flags in [&["default"][..], &["default", "--off"]] {
        let output = bench.driver_command("drain", flags);
        assert!(output.status.success(), "{output:?}");
    }
    driver.stop().await;
    mount::unmount(&bench.pool()).unwrap();

    let driver = bench.start().await;
    for id in [&id, &new] {
        refused("get", driver.health(id).await, Code::Unavailable);
        refused("delete", driver.delete(id).await, Code::Unavailable);
    }
    refused("stage", driver.stage(&usage).await, Code::Unavailable);
    refused("delete", driver.delete_snapshot(&snapshot).await, Code::Unavailable);
    // An id of neither UUID is known not to exist.
    driver.delete(&format!("vol-{:08}-{:032}", 0, 0)).await.unwrap();
    mount_pool(&bench);
    is_served(&driver).await;
    fill(&driver, &usage).await;
    driver.delete_snapshot(&snapshot).await.unwrap();
    driver.delete(&id).await.unwrap();
    driver.stop().await;
}
