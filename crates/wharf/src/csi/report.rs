use std::{
    io::{ErrorKind, Write},
    process::ExitCode,
};

use comfy_table::{Table, presets::NOTHING};
use prost_reflect::prost::Message;
use serde_json::Value;
use wharf_facts::quantity;

use super::{document, failure::Failure, flags::Output, secrets::Secrets};
use crate::text::plain;

/// An answer: the JSON document, and the part of it that the table shows.
pub(crate) struct Report {
    document: Value,
    view: View,
    notes: Vec<String>,
    complete: bool,
}

/// The part of a document that the table shows.
enum View {
    /// Nothing but the notes.
    NotesOnly,
    /// Every field, one per line.
    Fields,
    /// A list in the document, one entry per line.
    Rows { list: &'static str, none: &'static str, columns: &'static [Column] },
}

/// Messages whose name is omitted from the names of their fields.
const SUBJECTS: [&str; 3] = ["volume", "snapshot", "group_snapshot"];

/// Fields whose keys the driver chooses: shown in one line, as on the command line.
const MAPS: [&str; 5] = ["manifest", "parameters", "publish_context", "segments", "volume_context"];

/// The longest list of strings that is shown in one line.
const WIDE: usize = 60;

/// A column: its heading, and the JSON pointer of its value in an entry.
pub(crate) type Column = (&'static str, &'static str);

impl Report {
    /// A report with every field of an answer.
    pub(crate) fn of<M: Message>(rpc: &str, answer: &M) -> Self {
        Self::document(document::of(&format!("{rpc}Response"), answer))
    }

    /// A report with every field of a document.
    pub(crate) fn document(document: Value) -> Self {
        Self { document, view: View::Fields, notes: Vec::new(), complete: true }
    }

    /// Shows a list of the answer in columns, or `none` if it is empty.
    #[must_use]
    pub(crate) fn rows(
        self,
        list: &'static str,
        none: &'static str,
        columns: &'static [Column],
    ) -> Self {
        Self { view: View::Rows { list, none, columns }, ..self }
    }

    /// Shows a sentence instead of the fields, for answers that have none.
    #[must_use]
    pub(crate) fn sentence(self, note: String) -> Self {
        Self { view: View::NotesOnly, ..self }.note(note)
    }

    /// Adds a sentence below the table.
    #[must_use]
    pub(crate) fn note(mut self, note: String) -> Self {
        self.notes.push(note);
        self
    }

    /// Marks that the driver refused a part, which the exit code reports.
    #[must_use]
    pub(crate) fn incomplete(self) -> Self {
        Self { complete: false, ..self }
    }

    /// Writes the report to standard output.
    pub(crate) fn write(mut self, output: Output, secrets: &Secrets) -> Result<ExitCode, Failure> {
        strip(&mut self.document, secrets);
        let text = match output {
            Output::Json => format!("{:#}\n", self.document),
            Output::Table => self.table(secrets),
        };
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // The reader closed the pipe, as `head` does.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(error) => return Err(Failure::Output(format!("standard output: {error}"))),
            Ok(()) => {}
        }
        Ok(if self.complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn table(&self, secrets: &Secrets) -> String {
        let mut text = match &self.view {
            View::NotesOnly => String::new(),
            View::Fields => fields(&self.document),
            View::Rows { list, none, columns } => {
                match self.document.pointer(list).and_then(Value::as_array) {
                    Some(entries) if !entries.is_empty() => rows(entries, columns),
                    _ => format!("{none}\n"),
                }
            }
        };
        for note in &self.notes {
            text.push_str(&plain(&secrets.strip(note)));
            text.push('\n');
        }
        text
    }
}

fn rows(entries: &[Value], columns: &[Column]) -> String {
    let mut table = Table::new();
    table.set_header(columns.iter().map(|(heading, _)| *heading));
    for entry in entries {
        table.add_row(columns.iter().map(|(_, pointer)| {
            let key = pointer.rsplit('/').next().unwrap_or_default();
            let value = entry.pointer(pointer).unwrap_or(&Value::Null);
            match value.as_i64().filter(|_| is_bytes(key)) {
                Some(bytes) => quantity::human(bytes),
                None => cell(value),
            }
        }));
    }
    aligned(table)
}

/// Columns separated by two blanks, for people and awk.
fn aligned(mut table: Table) -> String {
    table.load_style(NOTHING);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt() + "\n"
}

/// The fields of the document. Fields of inner messages have dotted names.
fn fields(document: &Value) -> String {
    let mut lines = Vec::new();
    for (name, value) in document.as_object().into_iter().flatten() {
        let name = if SUBJECTS.contains(&name.as_str()) { "" } else { name };
        flatten(name, value, &mut lines);
    }
    let mut table = Table::new();
    for (name, value) in lines {
        table.add_row([plain(&name), value]);
    }
    aligned(table)
}

fn flatten(name: &str, value: &Value, lines: &mut Vec<(String, String)>) {
    let key = name.rsplit('.').next().unwrap_or_default();
    match value {
        Value::Object(object) if !object.is_empty() && !MAPS.contains(&key) => {
            for (key, inner) in object {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                flatten(&name, inner, lines);
            }
        }
        Value::Array(list) if list.iter().any(Value::is_object) => {
            for (index, inner) in list.iter().enumerate() {
                flatten(&format!("{name}[{index}]"), inner, lines);
            }
        }
        Value::Array(list) if cell(value).len() > WIDE => {
            let names = std::iter::once(name).chain(std::iter::repeat(""));
            lines.extend(names.zip(list).map(|(name, inner)| (name.to_owned(), cell(inner))));
        }
        value => {
            let bytes = value.as_i64().filter(|bytes| is_bytes(key) && *bytes >= 1024);
            let text = match bytes {
                Some(bytes) => format!("{bytes} ({})", quantity::human(bytes)),
                None => cell(value),
            };
            lines.push((name.to_owned(), text));
        }
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => plain(text),
        Value::Array(list) if list.is_empty() => "-".to_owned(),
        Value::Array(list) => list.iter().map(cell).collect::<Vec<_>>().join(", "),
        Value::Object(object) if object.is_empty() => "-".to_owned(),
        Value::Object(object) => {
            let pairs = object.iter().map(|(key, value)| format!("{}={}", plain(key), cell(value)));
            pairs.collect::<Vec<_>>().join(", ")
        }
    }
}

/// Whether a field of CSI counts bytes, by its name.
fn is_bytes(key: &str) -> bool {
    key.ends_with("_bytes") || key.ends_with("_volume_size") || key == "available_capacity"
}

/// Removes secrets from every string: the driver may have answered one.
fn strip(value: &mut Value, secrets: &Secrets) {
    match value {
        Value::String(text) => *text = secrets.strip(text),
        Value::Array(list) => list.iter_mut().for_each(|inner| strip(inner, secrets)),
        Value::Object(object) => object.values_mut().for_each(|inner| strip(inner, secrets)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_named_and_sizes_readable() {
        let volume = json!({ "volume": {
            "volume_id": "v\u{1b}", "capacity_bytes": 1 << 30, "volume_context": {},
            "accessible_topology": [{ "segments": { "zone": "a" } }],
        }});
        let text = fields(&volume);
        for line in [
            "accessible_topology[0].segments  zone=a",
            "1073741824 (1Gi)",
            "volume_context                   -",
            "v\\u{1b}",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
        assert!(!text.contains("volume.volume_id"), "{text}");
    }

    #[test]
    fn rows_follow_pointers() {
        let entries =
            [json!({ "volume": { "volume_id": "v", "capacity_bytes": 3 << 29 }, "status": null })];
        let text = rows(
            &entries,
            &[
                ("ID", "/volume/volume_id"),
                ("SIZE", "/volume/capacity_bytes"),
                ("NODES", "/status/x"),
            ],
        );
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines, [["ID", "SIZE", "NODES"], ["v", "1.5Gi", "-"]]);
    }
}
