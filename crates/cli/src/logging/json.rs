use serde_json::Value as Json;
use tracing::Level;

use super::{
    filter,
    record::{Record, Value, debug_json, debug_string},
    text::path_end,
};
use crate::go::visible_json;

/// component-base's JSON format: `ts`, `caller`, `msg` and `v`, then the values, then `err`.
pub(super) fn format(record: &Record<'_>) -> String {
    let fields = &record.fields;
    let mut line = String::from("{");
    push(&mut line, "ts", &millis(record).to_string());
    push_text(&mut line, "caller", &format!("{}:{}", path_end(record.file, 2), record.line));
    push_text(&mut line, "msg", &fields.message);
    match record.level {
        Level::ERROR => {}
        // An additional key for filters: component-base has no warnings.
        Level::WARN => {
            push(&mut line, "v", "0");
            push_text(&mut line, "level", "warning");
        }
        Level::INFO => push(&mut line, "v", "0"),
        Level::DEBUG => push(&mut line, "v", &filter::DEBUG.to_string()),
        Level::TRACE => push(&mut line, "v", &filter::TRACE.to_string()),
    }
    for (name, value) in &fields.values {
        push(&mut line, name, &json(value).to_string());
    }
    if let Some(error) = &fields.error {
        push_text(&mut line, "err", error);
    }
    line.push_str("}\n");
    line
}

/// Milliseconds since 1970 with a fraction, in floating point like upstream.
#[allow(clippy::cast_precision_loss)]
fn millis(record: &Record<'_>) -> f64 {
    record.time.as_nanosecond() as f64 / 1e6
}

fn json(value: &Value) -> Json {
    match value {
        Value::Bool(value) => Json::from(*value),
        Value::Int(value) => Json::from(*value),
        Value::Uint(value) => Json::from(*value),
        // JSON has no infinities.
        Value::Float(value) if !value.is_finite() => Json::from(value.to_string()),
        Value::Float(value) => Json::from(*value),
        Value::Text(text) => Json::from(text.as_str()),
        // `Debug` escapes more than JSON does; its text is kept.
        Value::Debug(text) => {
            debug_json(text).unwrap_or_else(|| Json::from(debug_string(text).unwrap_or(text)))
        }
    }
}

fn push_text(line: &mut String, name: &str, text: &str) {
    push(line, name, &Json::from(text).to_string());
}

fn push(line: &mut String, name: &str, encoded: &str) {
    if line.len() > 1 {
        line.push(',');
    }
    line.push_str(&Json::from(name).to_string());
    line.push(':');
    line.push_str(&visible_json(encoded));
}
