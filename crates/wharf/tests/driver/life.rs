//! All calls in the life of volumes, by a caller that retries until it succeeds.

use std::path::PathBuf;

use tonic::{Code, Status};
use wharf_csi_sdk::fault::FaultPoint;
use wharf_driver::{inspect::Row, points::Point};
use wharf_mount::space;
use wharf_proto::csi;

use crate::{
    bench::{Bench, MIB},
    bytes::{bytes, checksum, checksum_of, takes_a_write, write},
    client::{Usage, block, from_snapshot, from_volume, map, mounted, volume},
    running::Running,
};

const SIZE: u64 = 16 * MIB;
/// The smallest XFS.
const XFS_SIZE: u64 = 300 * MIB;
const XFS_GROWN: u64 = 320 * MIB;
const DATA: u64 = MIB / 4;

/// A caller of a driver that may die in any call; whatever was cut is called again.
pub(crate) struct Life<'a> {
    bench: &'a Bench,
    driver: Running,
    /// Where the driver dies, in this order, and how many of these it has died at.
    points: &'a [Point],
    crashes: usize,
    /// What the pool held after the last crash.
    found: Vec<Row>,
    /// Where filesystems are mounted now.
    mounts: Vec<PathBuf>,
    /// Files that are there now, with their checksums.
    files: Vec<(PathBuf, String)>,
}

impl<'a> Life<'a> {
    /// Starts a driver that dies at these points, one after the other.
    pub(crate) async fn new(bench: &'a Bench, points: &'a [Point]) -> Self {
        let driver = bench.start_with(&["--fault", &plan(points.first())]).await;
        let (found, mounts, files) = (Vec::new(), Vec::new(), Vec::new());
        Self { bench, driver, points, crashes: 0, found, mounts, files }
    }

    /// Where the driver has died.
    pub(crate) fn crashes(&self) -> &[Point] {
        &self.points[..self.crashes]
    }

    /// Volumes of every kind, from their creation to their deletion.
    pub(crate) async fn of_volumes(&mut self) {
        let a = self.bring_up("a", volume("a", SIZE, mounted(""))).await;
        let b = self.bring_up("b", volume("b", SIZE, mounted("ext4"))).await;
        let device = self.bring_up("device", volume("device", SIZE, block())).await;
        let old = self.fill(a.file("data"), 1);
        self.fill(b.file("data"), 2);
        self.fill(device.target.clone(), 3);

        let snapshot = self.snapshot("snapshot", &a.id).await;
        let new = self.fill(a.file("data"), 4);
        let group = self.group("group", &[&a.id, &b.id]).await;
        let member = group.snapshots[0].snapshot_id.clone();
        self.copy("restored", from_snapshot(&snapshot), &old).await;
        self.copy("member", from_snapshot(&member), &new).await;
        self.copy("clone", from_volume(&a.id), &new).await;
        self.grow().await;
        self.call(async |driver| driver.modify(&a.id, &[("wiops", "1000")]).await).await;

        for usage in [a, b, device] {
            self.take_down(usage).await;
        }
        self.call(async |driver| driver.delete_snapshot(&snapshot).await).await;
        self.call(async |driver| driver.delete_group(&group).await).await;
    }

    /// A volume that is declared in a pod.
    pub(crate) async fn of_an_ephemeral_volume(&mut self) {
        let mut usage = Usage::new(self.bench, "inline", "csi-inline", mounted(""));
        usage.staging = PathBuf::new();
        let ephemeral = wharf_facts::context::EPHEMERAL;
        usage.context = map(&[(ephemeral, "true"), ("size", "16Mi")]);
        self.call(async |driver| driver.publish(&usage).await).await;
        self.mounts.push(usage.target.clone());
        self.fill(usage.file("data"), 5);
        self.leave(&usage);
        self.call(async |driver| driver.unpublish(&usage).await).await;
    }

    /// Nothing may be left.
    pub(crate) async fn end(self) {
        let listed = self.driver.list().await.unwrap();
        assert_eq!(listed, Vec::<String>::new());
        assert_eq!(self.bench.rows(), Vec::new());
        self.driver.stop().await;
        self.bench.assert_empty();
    }

    /// Makes a volume with the bytes of another and looks at them.
    async fn copy(&mut self, name: &str, source: Option<csi::VolumeContentSource>, sum: &str) {
        let request = volume(name, 2 * SIZE, mounted(""));
        let request = csi::CreateVolumeRequest { volume_content_source: source, ..request };
        let usage = self.bring_up(name, request).await;
        assert_eq!(checksum_of(&usage.file("data"), DATA), sum, "{name}");
        let total = space::usage(&usage.target).unwrap().total;
        assert!(total > SIZE, "{name}: its filesystem has {total} bytes");
        self.take_down(usage).await;
    }

    /// Grows a volume while it is mounted.
    async fn grow(&mut self) {
        let usage = self.bring_up("xfs", volume("xfs", XFS_SIZE, mounted("xfs"))).await;
        self.fill(usage.file("data"), 6);
        let before = space::usage(&usage.target).unwrap().total;
        let grown = self.call(async |driver| driver.expand(&usage.id, XFS_GROWN).await).await;
        assert_eq!(grown, XFS_GROWN);
        self.call(async |driver| driver.node_expand(&usage, XFS_GROWN).await).await;
        let after = space::usage(&usage.target).unwrap().total;
        assert_eq!(after - before, XFS_GROWN - XFS_SIZE);
        self.take_down(usage).await;
    }

    async fn bring_up(&mut self, place: &str, request: csi::CreateVolumeRequest) -> Usage {
        let capability = request.volume_capabilities[0].clone();
        let id = self.create(request).await;
        let usage = Usage::new(self.bench, place, &id, capability);
        self.call(async |driver| driver.attach(&usage).await).await;
        self.call(async |driver| driver.stage(&usage).await).await;
        self.call(async |driver| driver.publish(&usage).await).await;
        if usage.target.is_dir() {
            self.mounts.push(usage.target.clone());
        }
        usage
    }

    async fn take_down(&mut self, usage: Usage) {
        self.leave(&usage);
        self.call(async |driver| driver.unpublish(&usage).await).await;
        self.call(async |driver| driver.unstage(&usage).await).await;
        self.call(async |driver| driver.detach(&usage.id).await).await;
        self.call(async |driver| driver.delete(&usage.id).await).await;
    }

    /// What is at a target is no longer looked at.
    fn leave(&mut self, usage: &Usage) {
        self.mounts.retain(|mount| *mount != usage.target);
        self.files.retain(|(file, _)| !file.starts_with(&usage.target));
    }

    /// Creates a volume. Its id is the one that was promised before a crash, and a further call
    /// gives it again.
    async fn create(&mut self, request: csi::CreateVolumeRequest) -> String {
        let before = self.crashes;
        let create = async |driver: &Running| driver.create(request.clone()).await;
        let id = self.call(create).await.volume_id;
        if self.crashes > before {
            assert_eq!(self.found_id("volume", &request.name), Some(id.clone()));
        }
        assert_eq!(self.call(create).await.volume_id, id);
        id
    }

    /// Cuts a snapshot. One that a crash left half cut is gone, one that was whole keeps its id.
    async fn snapshot(&mut self, name: &str, source: &str) -> String {
        let before = self.crashes;
        let cut = async |driver: &Running| driver.snapshot(name, source).await;
        let id = self.call(cut).await.snapshot_id;
        if self.crashes > before
            && let Some(found) = self.found_id("snapshot", name)
        {
            assert_eq!(found, id);
        }
        assert_eq!(self.call(cut).await.snapshot_id, id);
        id
    }

    async fn group(&mut self, name: &str, sources: &[&str]) -> csi::VolumeGroupSnapshot {
        let cut = async |driver: &Running| driver.group(name, sources).await;
        let group = self.call(cut).await;
        assert_eq!(self.call(cut).await, group);
        group
    }

    fn found_id(&self, kind: &str, name: &str) -> Option<String> {
        let row = self.found.iter().find(|row| row.kind == kind && row.name == name);
        row.map(|row| row.id.clone())
    }

    /// Writes a file or a device whole, and remembers what is in it.
    fn fill(&mut self, path: PathBuf, seed: u64) -> String {
        let bytes = bytes(seed, DATA);
        write(&path, &bytes);
        let sum = checksum(&bytes);
        self.files.retain(|(file, _)| *file != path);
        self.files.push((path, sum.clone()));
        sum
    }

    /// Calls until there is an answer; only a crash is a reason to call again.
    async fn call<T>(&mut self, rpc: impl AsyncFn(&Running) -> Result<T, Status>) -> T {
        loop {
            match rpc(&self.driver).await {
                Ok(answer) => return answer,
                Err(status) => self.come_back(&status).await,
            }
        }
    }

    /// Starts the driver anew after a crash, which `status` has to be the sign of.
    async fn come_back(&mut self, status: &Status) {
        let lost = matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled);
        assert!(lost, "{status}\n{}", self.driver.tail());
        self.driver.killed().await.unwrap_or_else(|error| panic!("{status}: {error:#}"));
        self.crashes += 1;
        self.driver = loop {
            let next = self.points.get(self.crashes);
            let command = self.bench.command(&["--fault", &plan(next)]);
            let folder = self.bench.path("");
            match Running::start(&command, &folder, &self.bench.socket()).await {
                Ok(driver) => break driver,
                // A start is a recovery, and may be cut, too.
                Err(_) if next.is_some() => self.crashes += 1,
                Err(error) => panic!("{error:#}"),
            }
        };
        self.found = self.bench.rows();
        for mount in &self.mounts {
            takes_a_write(mount).await.unwrap();
        }
        for (file, sum) in &self.files {
            assert_eq!(checksum_of(file, DATA), *sum, "{}", file.display());
        }
    }
}

fn plan(point: Option<&Point>) -> String {
    point.map(|point| format!("kill:{}", point.name())).unwrap_or_default()
}
