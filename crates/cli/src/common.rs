//! Rules between flags, and the termination message of a container.

use std::{
    io::{self, ErrorKind, Write},
    path::Path,
};

use crate::flags::{AnyFlag, Flag, FlagError, Parsed};

/// Kubernetes' default path of a container's termination message.
pub const TERMINATION_LOG: &str = "/dev/termination-log";

/// Rejects a command line that changes more than one of `flags`.
///
/// A flag given with its default value does not count: charts pass `--http-endpoint=` to mean none.
pub fn exclusive(parsed: &Parsed, flags: &[&dyn AnyFlag]) -> Result<(), FlagError> {
    let mut changed = flags.iter().filter(|flag| parsed.is_changed(**flag));
    match (changed.next(), changed.next()) {
        (Some(one), Some(other)) => Err(parsed.usage_error(format_args!(
            "only one of `--{}` and `--{}` can be set",
            one.name(),
            other.name()
        ))),
        _ => Ok(()),
    }
}

/// The text of a flag without a useful default; an error when it is missing or empty.
pub fn required<'a>(parsed: &'a Parsed, flag: &Flag<String>) -> Result<&'a str, FlagError> {
    match parsed.get(flag).as_str() {
        "" => Err(parsed.usage_error(format_args!("--{} is a required parameter", flag.name()))),
        text => Ok(text),
    }
}

/// Writes `text` as the container's termination message, usually to [`TERMINATION_LOG`].
///
/// The kubelet makes the file: where it is missing, nothing is written, since nothing would read
/// it.
pub fn write_termination_message(path: impl AsRef<Path>, text: &str) -> io::Result<()> {
    let file = std::fs::OpenOptions::new().write(true).truncate(true).open(path);
    match file {
        Ok(mut file) => file.write_all(text.as_bytes()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlagSet;

    #[test]
    fn exclusive_counts_changed_flags_only() {
        let mut flags = FlagSet::new("livenessprobe", "");
        let port = flags.int("health-port", 9808, "");
        let endpoint = flags.string("http-endpoint", "", "");
        for (args, allowed) in [
            (&["--health-port=1"][..], true),
            (&["--http-endpoint=:1"], true),
            (&["--health-port=1", "--http-endpoint="], true),
            (&["--health-port=9808", "--http-endpoint=:1"], true),
            (&["--health-port=1", "--http-endpoint=:1"], false),
        ] {
            let parsed = flags.parse(args.iter().copied()).unwrap();
            assert_eq!(exclusive(&parsed, &[&port, &endpoint]).is_ok(), allowed, "{args:?}");
        }
        let parsed = flags.parse(["--health-port=1", "--http-endpoint=:1"]).unwrap();
        let error = exclusive(&parsed, &[&port, &endpoint]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "only one of `--health-port` and `--http-endpoint` can be set\n\
             Run `livenessprobe --help` for all flags."
        );
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn required_names_the_flag() {
        let mut flags = FlagSet::new("registrar", "");
        let path = flags.string("kubelet-registration-path", "", "");
        let parsed = flags.parse(["--kubelet-registration-path=/csi.sock"]).unwrap();
        assert_eq!(required(&parsed, &path).unwrap(), "/csi.sock");
        let parsed = flags.parse(["--kubelet-registration-path="]).unwrap();
        let error = required(&parsed, &path).unwrap_err().to_string();
        assert!(error.starts_with("--kubelet-registration-path is a required"), "{error}");
    }

    #[test]
    fn termination_message_replaces_and_never_creates() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("termination-log");
        write_termination_message(&path, "nobody reads").unwrap();
        assert!(!path.exists());
        std::fs::write(&path, "an older, longer message").unwrap();
        write_termination_message(&path, "lost connection").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "lost connection");
        assert!(write_termination_message(folder.path(), "a folder").is_err());
    }
}
