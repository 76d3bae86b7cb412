//! Lives of volumes on two pools at once, while the driver is killed at random moments. Afterwards
//! all data is what it was, and nothing else is left.
//!
//! `cargo xtask soak driver` runs it for as long as one likes. A failure prints its seed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use crate::{
    bench::{Bench, MIB, PoolKind},
    bytes::{bytes, checksum, checksum_of, write},
    client::{Client, Usage, block, from_snapshot, from_volume, map, mounted, text, volume},
    full::mount_pool_of,
    running::Running,
};

/// How long the suite lets it run.
const USUAL: Duration = Duration::from_secs(60);
/// Lives at the same time.
const LIVES: u64 = 4;
const DATA: u64 = MIB / 2;
/// The pool that shares blocks; `default` copies.
const REFLINK: &str = "reflink";
/// How long one call may be repeated: a driver under this load is back within seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// Kills in a row that may leave every call unanswered. On a busy machine a stage takes longer than
/// the time between two kills, and would never end.
const FRUITLESS_KILLS: u32 = 5;

/// Numbers that only a seed decides.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 0
    }
}

/// What an environment variable says, if it is set.
fn asked(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

/// Writes the configuration of two pools: one that copies, and one that shares blocks.
fn configure(bench: &Bench) -> std::path::PathBuf {
    let file = bench.path("driver.yaml");
    let (copy, reflink) = (text(&bench.pool()), text(&bench.path("reflink")));
    let config = format!(
        "pools:\n- {{name: default, folder: {copy}, kinds: [thick, thin]}}\n\
         - {{name: reflink, folder: {reflink}, image: 1Gi, kinds: [thick, thin]}}\n"
    );
    std::fs::write(&file, config).unwrap();
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn lives_on_two_pools_survive_kills_at_random_moments() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let Some(()) = crate::bench::needs(&["mkfs.xfs"]) else { return };
    mount_pool_of(&bench, 1024 * MIB);
    let file = configure(&bench);
    let bench = Arc::new(bench.config(&file));
    let seed = asked("WHARF_SOAK_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let length = asked("WHARF_SOAK_SECONDS").map_or(USUAL, Duration::from_secs);
    println!("seed {seed}: WHARF_SOAK_SEED={seed} repeats the choices");

    let end = Instant::now() + length;
    let over = CancellationToken::new();
    let done = Arc::new(AtomicU64::new(0));
    let answers = watch::Sender::new(());
    let mut lives = JoinSet::new();
    let driver = bench.start().await;
    for index in 0..LIVES {
        let life = Life {
            client: Client::new(&bench.socket()),
            bench: bench.clone(),
            random: Random::new(seed.wrapping_add(index)),
            name: format!("life-{index}"),
            over: over.clone(),
            done: done.clone(),
            answers: answers.clone(),
        };
        lives.spawn(life.repeat(end));
    }
    let mut killer = JoinSet::new();
    let random = Random::new(!seed);
    killer.spawn(kill_at_random(bench.clone(), driver, random, over.clone(), answers.subscribe()));
    let mut failed = None;
    while let Some(life) = lives.join_next().await {
        if let Err(error) = life {
            over.cancel();
            failed = failed.or(Some(error));
        }
    }
    over.cancel();
    let killed = killer.join_next().await.unwrap();
    let (driver, kills) = killed.unwrap_or_else(|error| panic!("seed {seed}: killer: {error}"));
    if let Some(error) = failed {
        panic!("seed {seed}: {error}\n{}", driver.tail());
    }
    println!("seed {seed}: {} lives, {kills} kills", done.load(Ordering::Relaxed));
    assert!(kills > 0 && done.load(Ordering::Relaxed) > 0, "seed {seed}: nothing happened");
    assert_nothing_left(&bench, &driver, seed).await;
    driver.stop().await;
}

/// Kills the driver and starts it again until all is over. `answers` changes with each call that
/// succeeds.
async fn kill_at_random(
    bench: Arc<Bench>,
    mut driver: Running,
    mut random: Random,
    over: CancellationToken,
    mut answers: watch::Receiver<()>,
) -> (Running, u64) {
    // A driver that does not start is the failure to report: the calls of all lives fail for it.
    let _over = over.clone().drop_guard();
    let (mut kills, mut fruitless) = (0, 0);
    loop {
        let moment = Duration::from_millis(20 + random.below(900));
        let wait = async {
            tokio::time::sleep(moment).await;
            if fruitless == FRUITLESS_KILLS {
                answers.changed().await.unwrap();
            }
        };
        if over.run_until_cancelled(wait).await.is_none() {
            return (driver, kills);
        }
        let is_answered = fruitless == FRUITLESS_KILLS || answers.has_changed().unwrap();
        fruitless = if is_answered { 0 } else { fruitless + 1 };
        answers.mark_unchanged();
        driver.kill().await;
        kills += 1;
        driver = bench.start().await;
    }
}

async fn assert_nothing_left(bench: &Bench, driver: &Running, seed: u64) {
    let check = bench.driver_command("check", &[]);
    assert!(check.status.success(), "seed {seed}: {check:?}");
    let listed = bench.driver_command("ls", &["--output", "json"]);
    let rows: Vec<wharf_driver::inspect::Row> = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(rows, [], "seed {seed}");
    assert_eq!(driver.list().await.unwrap(), Vec::<String>::new(), "seed {seed}");
    for pool in [bench.pool(), bench.path("reflink/pool")] {
        let files: Vec<_> = ["volumes", "snapshots", "partial", "quarantine", "ephemeral", "undo"]
            .into_iter()
            .flat_map(|folder| pool.join(folder).read_dir().unwrap())
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(files, Vec::<std::path::PathBuf>::new(), "seed {seed}");
        assert_eq!(crate::bench::loops_below(&pool), [], "seed {seed}");
    }
    let left = crate::bench::mounts_below(&bench.path(""));
    assert_eq!(left, [bench.pool(), bench.path("reflink/pool")], "seed {seed}");
    assert_eq!(bench.path("pods").read_dir().unwrap().count(), 0, "seed {seed}");
}

/// One volume after another, each with its own fate.
struct Life {
    client: Client,
    bench: Arc<Bench>,
    random: Random,
    name: String,
    over: CancellationToken,
    done: Arc<AtomicU64>,
    answers: watch::Sender<()>,
}

impl Life {
    async fn repeat(mut self, end: Instant) {
        let mut round = 0;
        while Instant::now() < end && !self.over.is_cancelled() {
            self.live(&format!("{}-{round}", self.name)).await;
            self.done.fetch_add(1, Ordering::Relaxed);
            round += 1;
        }
    }

    async fn live(&mut self, name: &str) {
        let pool = self.pool();
        let source = self.create(name, pool, None).await;
        let data = bytes(self.random.below(u64::MAX), DATA);
        self.bring_up(&source).await;
        self.write(&source, &data).await;
        let sum = checksum(&data);
        let mut snapshot = None;
        if self.random.flip() && Self::can_be_cut(&source, pool) {
            // Flushed by now, so it has all of the data.
            let name = format!("{name}-snapshot");
            let cut = self.again("snapshot", || self.client.snapshot(&name, &source.id)).await;
            snapshot = Some(cut.snapshot_id);
        }
        if self.random.flip() {
            self.again("expand", || self.client.expand(&source.id, 48 * MIB)).await;
        }
        self.take_down(&source).await;
        if self.random.flip() {
            let from = match &snapshot {
                Some(id) if self.random.flip() => from_snapshot(id),
                _ => from_volume(&source.id),
            };
            let pool = self.pool();
            let copy = self.create(&format!("{name}-copy"), pool, Some((from, &source))).await;
            self.bring_up(&copy).await;
            self.compare(&copy, &sum).await;
            self.take_down(&copy).await;
            self.delete(&copy).await;
        }
        if self.random.flip() {
            self.bring_up(&source).await;
            self.compare(&source, &sum).await;
            self.take_down(&source).await;
        }
        if self.random.flip() {
            self.delete(&source).await;
        }
        if let Some(id) = snapshot {
            self.again("delete snapshot", || self.client.delete_snapshot(&id)).await;
        }
        self.delete(&source).await;
    }

    fn pool(&mut self) -> &'static str {
        if self.random.flip() { "default" } else { REFLINK }
    }

    /// A volume, thick or thin, with a filesystem or without; a copy is used as its source is.
    async fn create(
        &mut self,
        name: &str,
        pool: &str,
        from: Option<(Option<wharf_proto::csi::VolumeContentSource>, &Usage)>,
    ) -> Usage {
        let thin = if self.random.below(4) == 0 { "true" } else { "false" };
        let capability = match &from {
            Some((_, source)) => source.capability.clone(),
            None if self.random.below(4) == 0 => block(),
            None => mounted("ext4"),
        };
        let size = if from.is_some() { 64 * MIB } else { (16 + self.random.below(16)) * MIB };
        let mut request = volume(name, size, capability.clone());
        request.parameters = map(&[("pool", pool), ("thin", thin)]);
        request.volume_content_source = from.and_then(|(source, _)| source);
        let made = self.again("create", || self.client.create(request.clone())).await;
        Usage::new(&self.bench, name, &made.volume_id, capability)
    }

    async fn bring_up(&self, usage: &Usage) {
        self.again("attach", || self.client.attach(usage)).await;
        self.again("stage", || self.client.stage(usage)).await;
        self.again("publish", || self.client.publish(usage)).await;
    }

    async fn take_down(&self, usage: &Usage) {
        self.again("unpublish", || self.client.unpublish(usage)).await;
        self.again("unstage", || self.client.unstage(usage)).await;
        self.again("detach", || self.client.detach(&usage.id)).await;
    }

    async fn delete(&self, usage: &Usage) {
        self.again("delete", || self.client.delete(&usage.id)).await;
    }

    /// A block device in use is held still by nobody, and on the pool that copies it would have to
    /// be.
    fn can_be_cut(usage: &Usage, pool: &str) -> bool {
        usage.capability != block() || pool == REFLINK
    }

    async fn write(&self, usage: &Usage, data: &[u8]) {
        let (path, data) = (place(usage), data.to_owned());
        tokio::task::spawn_blocking(move || write(&path, &data)).await.unwrap();
    }

    async fn compare(&self, usage: &Usage, sum: &str) {
        let path = place(usage);
        let found = tokio::task::spawn_blocking(move || checksum_of(&path, DATA)).await.unwrap();
        assert_eq!(found, sum, "{}: the data of {} changed", self.name, usage.id);
    }

    /// Repeats a call as an orchestrator does, until the driver has an answer of its own.
    async fn again<T, F: Future<Output = Result<T, Status>>>(
        &self,
        what: &str,
        call: impl Fn() -> F,
    ) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = match call().await {
                Ok(done) => {
                    self.answers.send_replace(());
                    return done;
                }
                Err(status) => status,
            };
            let lost = matches!(
                status.code(),
                Code::Unavailable | Code::Aborted | Code::Cancelled | Code::Unknown
            );
            let waits = lost && Instant::now() < deadline && !self.over.is_cancelled();
            assert!(waits, "{}: {what}: {status:?}", self.name);
            // The driver is down, or at work on the call before.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Where a volume's data is: a file, or the device itself.
fn place(usage: &Usage) -> std::path::PathBuf {
    if usage.capability == block() { usage.target.clone() } else { usage.file("data") }
}

#[test]
fn a_seed_decides_all_choices() {
    let choices = |seed| {
        let mut random = Random::new(seed);
        (0..32).map(|_| random.below(100)).collect::<Vec<_>>()
    };
    assert_eq!(choices(7), choices(7));
    assert_ne!(choices(7), choices(8));
}
