//! I/O limits of a volume's device, as the kernel reports them.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use wharf_mount::loopdev;
use wharf_proto::csi;
use wharf_testkit::{process, skip};

use crate::{
    bench::{Bench, MIB, PoolKind, loops_below},
    client::{Usage, block, map, volume},
};

const BLKIO: &str = "/sys/fs/cgroup/blkio";
const POD: &str = "0b5e1f6c-2f0e-4f4c-9d52-6a4d1f0e7c11";
const RATE: u64 = 4 * MIB;
const WRITTEN: u64 = 8 * MIB;
const PATIENCE: Duration = Duration::from_secs(60);

/// A cgroup with a pod in it, for as long as the test runs.
struct Pod {
    root: PathBuf,
    container: PathBuf,
}

impl Pod {
    fn new() -> Option<Self> {
        // Tests of one process run side by side.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = Path::new(BLKIO).join(format!("wharf-limits-{}-{number}", std::process::id()));
        let container = root.join(format!("pod{POD}/container"));
        match std::fs::create_dir_all(&container) {
            Ok(()) if container.join("blkio.throttle.write_bps_device").exists() => {
                Some(Self { root, container })
            }
            _ => {
                skip::record(None, "needs the blkio controller of cgroup v1");
                None
            }
        }
    }

    /// The limit of bytes written per second of a device, as `MAJOR:MINOR RATE`.
    fn limit(&self) -> String {
        limit_of(&self.container)
    }

    /// A container that starts when the pod's volumes are there already, as all of them do.
    fn another_container(&self) -> PathBuf {
        let container = self.container.with_file_name("later");
        std::fs::create_dir(&container).unwrap();
        container
    }

    /// How long a process of the pod writes, past the page cache.
    async fn write(&self, device: &Path) -> Duration {
        let script = "echo $$ > \"$0/cgroup.procs\" && exec dd if=/dev/zero of=\"$1\" bs=64k \
                      count=\"$2\" oflag=direct conv=notrunc status=none";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(&self.container).arg(device);
        command.arg((WRITTEN / (64 << 10)).to_string());
        let begun = Instant::now();
        process::run(&command, PATIENCE).await.unwrap();
        begun.elapsed()
    }
}

fn limit_of(container: &Path) -> String {
    let file = container.join("blkio.throttle.write_bps_device");
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(self.container.with_file_name("later"));
        for folder in self.container.ancestors().take_while(|folder| *folder != Path::new(BLKIO)) {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_hold_in_the_cgroups_of_a_pod_change_at_once_and_come_back_after_a_restart() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let Some(pod) = Pod::new() else { return };
    let bench = bench.cgroups(&pod.root);
    let driver = bench.start().await;
    let request = csi::CreateVolumeRequest {
        mutable_parameters: map(&[("wbps", &RATE.to_string())]),
        ..volume("a", 16 * MIB, block())
    };
    let id = driver.create(request).await.unwrap().volume_id;
    let mut usage = Usage::new(&bench, "a", &id, block());
    usage.context = map(&[(wharf_facts::context::POD_UID, POD)]);
    driver.bring_up(&usage).await.unwrap();
    let device = &loops_below(&bench.images())[0].0;
    let number = loopdev::device_number(&device.path).unwrap();
    let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let limited = format!("{number} {RATE}");

    assert_eq!(pod.limit(), limited);
    let took = pod.write(&usage.target).await;
    // The kernel lets the first part of a second through at once: half of the time is proof enough.
    assert!(took >= Duration::from_secs(WRITTEN / RATE) / 2, "{took:?}");

    let later = pod.another_container();
    let reached = async || (limit_of(&later) == limited).then_some(());
    process::wait_for(PATIENCE, "a limit on a container that started later", reached)
        .await
        .unwrap();

    driver.modify(&id, &[("wbps", "max")]).await.unwrap();
    assert_eq!(pod.limit(), "");
    driver.modify(&id, &[("wbps", &RATE.to_string())]).await.unwrap();
    assert_eq!(pod.limit(), limited);

    driver.kill().await;
    let file = pod.container.join("blkio.throttle.write_bps_device");
    std::fs::write(&file, format!("{number} 0")).unwrap();
    assert_eq!(pod.limit(), "");
    let driver = bench.start().await;
    assert_eq!(pod.limit(), limited);
    driver.take_down(&usage).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_a_volume_in_no_known_cgroup_wait_for_the_next_publish() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let Some(pod) = Pod::new() else { return };
    let bench = bench.cgroups(&pod.root);
    let driver = bench.start().await;
    let id = driver.create(volume("a", 16 * MIB, block())).await.unwrap().volume_id;
    let mut usage = Usage::new(&bench, "a", &id, block());
    driver.bring_up(&usage).await.unwrap();
    driver.modify(&id, &[("wbps", &RATE.to_string())]).await.unwrap();
    assert_eq!(pod.limit(), "");
    driver.unpublish(&usage).await.unwrap();
    usage.context = map(&[(wharf_facts::context::POD_UID, POD)]);
    driver.publish(&usage).await.unwrap();
    assert!(pod.limit().ends_with(&format!(" {RATE}")), "{}", pod.limit());
    driver.take_down(&usage).await.unwrap();
    driver.stop().await;
}
