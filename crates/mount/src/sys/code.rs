//! Pages of this program's code.

use std::ops::Range;

/// Unmaps the pages of the program's code from this process. Pages that run again are mapped from
/// the page cache.
pub(crate) fn release() {
    // On failure the process only uses more memory.
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return };
    for range in code(&maps) {
        // SAFETY: the range is a mapping of a file that this process can read and execute but not
        // write, so its pages equal the file's and are the same when they are mapped again. Nothing
        // unmaps code while the program runs.
        unsafe {
            libc::madvise(range.start as *mut libc::c_void, range.len(), libc::MADV_DONTNEED);
        }
    }
}

/// Executable, read-only mappings of files.
fn code(maps: &str) -> impl Iterator<Item = Range<usize>> {
    maps.lines().filter_map(|line| {
        // start-end permissions offset device inode path
        let mut parts = line.split_ascii_whitespace();
        let (start, end) = parts.next()?.split_once('-')?;
        let runs = parts.next()? == "r-xp";
        let of_file = parts.nth(3).is_some_and(|path| path.starts_with('/'));
        let address = |text| usize::from_str_radix(text, 16).ok();
        (runs && of_file).then_some(address(start)?..address(end)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_files_is_released() {
        let maps = "\
7f00-8f00 r--p 00000000 fe:00 12 /usr/bin/wharf
8f00-9f00 r-xp 00001000 fe:00 12 /usr/bin/wharf
9f00-af00 rw-p 00002000 fe:00 12 /usr/bin/wharf
af00-bf00 rwxp 00000000 fe:00 12 /tmp/jit
bf00-cf00 rw-p 00000000 00:00 0 [heap]
cf00-df00 r-xp 00000000 00:00 0 [vdso]
df00-ef00 r-xp 00000000 00:00 0
";
        let found: Vec<(usize, usize)> = code(maps).map(|it| (it.start, it.end)).collect();
        assert_eq!(found, [(0x8f00, 0x9f00)]);
    }

    #[test]
    fn a_program_runs_on_without_its_pages() {
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        let before = resident();
        release();
        let after = resident();
        assert!(after < before, "{after} kB of {before} kB");
    }
}
