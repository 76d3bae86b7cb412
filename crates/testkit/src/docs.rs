//! Shell commands of the README and the docs, for tests and `cargo xtask fresh`.

use std::{
    io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::peers::repository;

/// Programs that a block may call and that a minimal Debian lacks.
const EXTRA_PROGRAMS: &[&str] = &["curl", "jq"];

/// A fenced block of a document, marked `sh`, or `sh root` if it mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The document, from the repository's root.
    pub file: PathBuf,
    /// The number of the script's first line.
    pub line: usize,
    /// Whether the script needs root.
    pub root: bool,
    /// The commands.
    pub script: String,
}

impl Block {
    /// Its place, such as `docs/driver.md:17`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}:{}", self.file.display(), self.line)
    }

    /// A program that the script calls and this machine lacks.
    #[must_use]
    pub fn missing_program(&self) -> Option<&'static str> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let installed =
            |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
        let called = |name: &str| self.script.split_whitespace().any(|word| word == name);
        EXTRA_PROGRAMS.iter().copied().find(|name| called(name) && !installed(name))
    }
}

/// The blocks of the README, then those of `docs/` by file name.
pub fn blocks() -> io::Result<Vec<Block>> {
    let mut docs = Vec::new();
    for entry in repository().join("docs").read_dir()? {
        let name = entry?.file_name();
        docs.push(Path::new("docs").join(name));
    }
    docs.retain(|file| file.extension().is_some_and(|extension| extension == "md"));
    docs.sort();
    let mut blocks = Vec::new();
    for file in [vec![PathBuf::from("README.md")], docs].concat() {
        let text = std::fs::read_to_string(repository().join(&file))?;
        blocks.extend(parse(&file, &text));
    }
    Ok(blocks)
}

fn parse(file: &Path, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in text.lines().enumerate() {
        match (&mut open, line) {
            (None, "```sh" | "```sh root") => {
                let root = line.ends_with("root");
                let script = String::new();
                open = Some(Block { file: file.to_owned(), line: index + 2, root, script });
            }
            (Some(_), "```") => blocks.extend(open.take()),
            (Some(block), line) => {
                block.script.push_str(line);
                block.script.push('\n');
            }
            (None, _) => {}
        }
    }
    blocks
}

/// A folder for a block's temporary files. Dropping it unmounts and detaches whatever the block
/// left in it.
#[derive(Debug)]
pub struct Scratch(pub tempfile::TempDir);

impl Drop for Scratch {
    fn drop(&mut self) {
        const UNDO: &str = r#"
            tac /proc/self/mountinfo | awk -v dir="$0/" 'index($5, dir) == 1 { print $5 }' | xargs -r umount --lazy
            losetup --noheadings --list --output NAME,BACK-FILE |
                awk -v dir="$0/" 'index($2, dir) == 1 { print $1 }' | xargs -r losetup --detach
        "#;
        // Fails for an ordinary user, who has mounted nothing.
        let _ = Command::new("bash").args(["-c", UNDO]).arg(self.0.path()).output();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_marked_as_shell() {
        let text = "a\n```sh\nb\n```\n```text\nc\n```\n```sh root\nd\ne\n```\n";
        let found: Vec<_> = parse(Path::new("a.md"), text)
            .into_iter()
            .map(|block| (block.name(), block.root, block.script))
            .collect();
        let expected = [("a.md:3", false, "b\n"), ("a.md:9", true, "d\ne\n")];
        assert_eq!(found, expected.map(|(a, b, c)| (a.to_owned(), b, c.to_owned())));
    }
}
