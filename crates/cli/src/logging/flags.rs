use std::time::Duration;

use super::{LogError, LogFormat, LogGuard, LogOptions, VModule};
use crate::{
    flags::{ByteSize, Dialect, Flag, FlagSet, FlagValue, Parsed},
    go::{self, NumberError},
};

/// klog's flags: those of component-base, and older ones that charts still pass.
#[derive(Clone, Copy, Debug)]
pub struct LoggingFlags {
    format: Flag<LogFormat>,
    verbosity: Flag<Verbosity>,
    vmodule: Flag<VModule>,
    flush_every: Flag<Duration>,
    text: StreamFlags,
    json: StreamFlags,
    skip_headers: Flag<bool>,
    add_dir_header: Flag<bool>,
}

#[derive(Clone, Copy, Debug)]
struct StreamFlags {
    split: Flag<bool>,
    buffer: Flag<ByteSize>,
}

/// klog flags without effect: name, whether it is a switch, and the advice of the warning.
const IGNORED: &[(&str, bool, &str)] = &[
    ("alsologtostderr", true, TO_STDERR),
    ("legacy_stderr_threshold_behavior", true, TO_STDERR),
    ("log_backtrace_at", false, "it is ignored: use --vmodule to see more of one file"),
    ("log_dir", false, TO_STDERR),
    ("log_file", false, TO_STDERR),
    ("log_file_max_size", false, TO_STDERR),
    ("logtostderr", true, TO_STDERR),
    ("one_output", true, TO_STDERR),
    ("skip_log_headers", true, TO_STDERR),
    ("stderrthreshold", false, TO_STDERR),
];

const TO_STDERR: &str = "it is ignored: logs always go to standard error, never to files";

impl LoggingFlags {
    /// Declares the flags on `flags`.
    pub fn register(flags: &mut FlagSet) -> Self {
        for (name, is_switch, fate) in IGNORED {
            let help = "Flag of older klog versions.";
            if *is_switch {
                flags.bool(name, false, help);
            } else {
                flags.string(name, "", help);
            }
            flags.deprecate(name, *fate);
        }
        let logging = Self {
            format: flags.value("logging-format", LogFormat::Text, "Format of log lines: text or json."),
            verbosity: flags.value(
                "v",
                Verbosity(0),
                "Log verbosity: from 4 debug lines, from 5 the content of calls to the CSI driver without \
                 secrets, from 6 all lines of wharf, from 8 debug lines of libraries.",
            ),
            vmodule: flags.value(
                "vmodule",
                VModule::default(),
                "Log verbosity of source files, as name=N,... without .rs; * and ? are wildcards.",
            ),
            flush_every: flags.duration(
                "log-flush-frequency",
                Duration::from_secs(5),
                "Longest time that a log line is buffered; only with an info buffer.",
            ),
            text: StreamFlags {
                split: flags.bool("log-text-split-stream", false, SPLIT),
                buffer: flags.value("log-text-info-buffer-size", ByteSize(0), BUFFER),
            },
            json: StreamFlags {
                split: flags.bool("log-json-split-stream", false, SPLIT),
                buffer: flags.value("log-json-info-buffer-size", ByteSize(0), BUFFER),
            },
            skip_headers: flags.bool(
                "skip_headers",
                false,
                "Omit severity, time and source in text lines.",
            ),
            add_dir_header: flags.bool(
                "add_dir_header",
                false,
                "Include the folder of the source file in text lines.",
            ),
        };
        for name in ["skip_headers", "add_dir_header"] {
            flags.deprecate(name, "newer Kubernetes components do not have it; it is obeyed here");
        }
        logging
    }

    /// The settings of a command line.
    pub fn options(&self, parsed: &Parsed) -> LogOptions {
        let format = *parsed.get(&self.format);
        let streams = match format {
            LogFormat::Text => &self.text,
            LogFormat::Json => &self.json,
        };
        LogOptions {
            format,
            verbosity: parsed.get(&self.verbosity).0,
            vmodule: parsed.get(&self.vmodule).clone(),
            split_stream: *parsed.get(&streams.split),
            info_buffer: usize::try_from(parsed.get(&streams.buffer).0).unwrap_or(usize::MAX),
            flush_every: *parsed.get(&self.flush_every),
            skip_headers: *parsed.get(&self.skip_headers),
            add_dir_header: *parsed.get(&self.add_dir_header),
        }
    }

    /// Warnings for flags without effect in this combination.
    pub fn warnings(&self, parsed: &Parsed) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut unused = |name: &str, unless: &str| {
            warnings.push(format!("--{name} has no effect without {unless}"));
        };
        let options = self.options(parsed);
        let (used, other, other_format) = match options.format {
            LogFormat::Text => (&self.text, &self.json, "--logging-format=json"),
            LogFormat::Json => (&self.json, &self.text, "--logging-format=text"),
        };
        if parsed.is_changed(&other.split) {
            unused(other.split.name(), other_format);
        }
        if parsed.is_changed(&other.buffer) {
            unused(other.buffer.name(), other_format);
        }
        if options.info_buffer > 0 && !options.split_stream {
            unused(used.buffer.name(), &format!("--{}", used.split.name()));
        }
        if parsed.is_changed(&self.flush_every) && options.info_buffer == 0 {
            unused(self.flush_every.name(), &format!("--{}", used.buffer.name()));
        }
        for flag in [&self.skip_headers, &self.add_dir_header] {
            if parsed.is_changed(flag) && options.format == LogFormat::Json {
                unused(flag.name(), other_format);
            }
        }
        warnings
    }

    /// Installs the settings for the process, and logs the warnings of the command line.
    pub fn init(&self, parsed: &Parsed) -> Result<LogGuard, LogError> {
        let guard = self.options(parsed).init()?;
        for warning in parsed.warnings().into_iter().chain(self.warnings(parsed)) {
            tracing::warn!("{warning}");
        }
        Ok(guard)
    }
}

const SPLIT: &str =
    "With this format: errors to standard error, all other lines to standard output.";

const BUFFER: &str = "With split streams: how much output may wait in memory, such as 512 or 64Ki; 0 \
                      writes each line at once.";

impl FlagValue for LogFormat {
    const KIND: &'static str = "string";

    fn set(&mut self, text: &str, _: Dialect) -> Result<(), String> {
        *self = text.parse()?;
        Ok(())
    }

    fn show(&self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Json => "json".to_owned(),
        }
    }
}

/// klog's `-v`, whose errors are those of `strconv` in both dialects.
#[derive(Clone, Copy, Debug, Default)]
struct Verbosity(u32);

impl FlagValue for Verbosity {
    const KIND: &'static str = "Level";

    fn set(&mut self, text: &str, _: Dialect) -> Result<(), String> {
        let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let problem = if is_number { NumberError::Range } else { NumberError::Syntax };
        let level = text
            .parse()
            .map_err(|_| format!("strconv.ParseUint: parsing {}: {problem}", go::quote(text)))?;
        self.0 = level;
        Ok(())
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}
