use jiff::tz::TimeZone;
use tracing::Level;

use super::record::{Record, Value, debug_json, debug_string};
use crate::go::{quote, visible, visible_json};

/// klog's text format.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) pid: u32,
    pub(super) zone: TimeZone,
    pub(super) skip_headers: bool,
    pub(super) add_dir_header: bool,
}

impl Text {
    pub(super) fn format(&self, record: &Record<'_>) -> String {
        let mut line = if self.skip_headers { String::new() } else { self.header(record) };
        line.push_str(&quote(&record.fields.message));
        if let Some(error) = &record.fields.error {
            push_text(&mut line, "err", error);
        }
        for (name, value) in &record.fields.values {
            push_value(&mut line, name, value);
        }
        line.push('\n');
        line
    }

    fn header(&self, record: &Record<'_>) -> String {
        let severity = match record.level {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            _ => 'I',
        };
        let time = self.zone.to_datetime(record.time);
        let (month, day) = (time.month(), time.day());
        let (hour, minute, second) = (time.hour(), time.minute(), time.second());
        let micros = time.subsec_nanosecond() / 1000;
        let parts = if self.add_dir_header { 2 } else { 1 };
        format!(
            "{severity}{month:02}{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06} {:>7} {}:{}] ",
            self.pid,
            path_end(record.file, parts),
            record.line,
        )
    }
}

/// The last `parts` components of a path.
pub(super) fn path_end(path: &str, parts: usize) -> &str {
    let start = path.rmatch_indices('/').nth(parts - 1).map_or(0, |(slash, _)| slash + 1);
    &path[start..]
}

fn push_value(line: &mut String, name: &str, value: &Value) {
    let shown = match value {
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Text(text) => return push_text(line, name, text),
        Value::Debug(text) if debug_string(text).is_some() => visible(text),
        // klog prints lists and maps unquoted, as JSON.
        Value::Debug(text) => match debug_json(text) {
            Some(json) => visible_json(&json.to_string()),
            None => return push_text(line, name, text),
        },
    };
    line.push_str(&format!(" {name}={shown}"));
}

/// A text of one line is quoted; one of several lines keeps its line breaks, indented so that none
/// looks like the start of a log line. It may come from a driver.
fn push_text(line: &mut String, name: &str, text: &str) {
    if !text.contains('\n') {
        line.push_str(&format!(" {name}={}", quote(text)));
        return;
    }
    line.push_str(&format!(" {name}=<\n"));
    for part in text.lines() {
        line.push_str(&format!("\t{}\n", visible(part)));
    }
    line.push_str(" >");
}
