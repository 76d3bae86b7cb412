//! Programs that replace e2fsck, resize2fs and e2undo, to fail or to delay.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::{bench::Bench, running::Running};

/// Puts a shell script in front of `program`; `$real` in it is the program. Gives the folder of the
/// script.
pub(crate) fn stand_in(bench: &Bench, program: &str, script: &str) -> PathBuf {
    let folder = bench.path(&format!("bin-{program}"));
    std::fs::create_dir_all(&folder).unwrap();
    let text = format!("#!/bin/sh\nPATH=/usr/sbin:/sbin:/usr/bin:/bin\nreal={program}\n{script}\n");
    let path = folder.join(program);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// A driver that finds the programs of this folder first.
pub(crate) async fn start_with_path(bench: &Bench, folder: &Path) -> Running {
    let mut command = bench.command(&[]);
    let path = std::env::var_os("PATH").unwrap();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(folders).unwrap());
    Running::start(&command, &bench.path(""), &bench.socket()).await.unwrap()
}
