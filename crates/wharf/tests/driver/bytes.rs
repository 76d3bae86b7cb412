//! Recognizable data, and reads and writes with a deadline.

use std::{path::Path, process::Command, time::Duration};

use sha2::{Digest, Sha256};
use wharf_testkit::process;

const LIMIT: Duration = Duration::from_secs(20);

/// `size` bytes that only this seed gives.
pub(crate) fn bytes(seed: u64, size: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = (0..size.div_ceil(8)).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(usize::try_from(size).unwrap()).collect()
}

/// Writes bytes into a file or a device, through to the disk.
pub(crate) fn write(path: &Path, bytes: &[u8]) {
    use std::io::Write;
    let file = std::fs::File::options().create(true).truncate(false).write(true).open(path);
    let mut file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file.write_all(bytes).and_then(|()| file.sync_all()).unwrap();
}

pub(crate) fn checksum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first `size` bytes of a file or a device.
pub(crate) fn read(path: &Path, size: u64) -> Vec<u8> {
    use std::io::Read;
    let file = std::fs::File::open(path);
    let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    file.take(size).read_to_end(&mut bytes).unwrap();
    bytes
}

/// The checksum of the first `size` bytes of a file or a device.
pub(crate) fn checksum_of(path: &Path, size: u64) -> String {
    checksum(&read(path, size))
}

/// Whether a filesystem takes a write; another process writes, since a frozen one holds its writers
/// for good.
pub(crate) async fn takes_a_write(folder: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("dd");
    command.args(["if=/dev/zero", "bs=4096", "count=1", "conv=fsync", "status=none"]);
    command.arg(format!("of={}", folder.join("written").display()));
    process::run(&command, LIMIT).await.map(drop)
}
