use std::path::Path;

use comfy_table::{Table, presets::NOTHING};
use wharf_registration::survey::{Answer, Line};

use crate::text::plain;

/// Longer cells are cut: a plugin may send a megabyte of versions.
const LONGEST: usize = 60;

/// The table of `ls` and `watch`; sockets are named relative to `root`.
pub(crate) fn render(root: &Path, lines: &[Line]) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["SOCKET", "TYPE", "NAME", "ENDPOINT", "VERSIONS", "STATE", "LAST ERROR"]);
    for line in lines {
        let socket = line.socket.strip_prefix(root).unwrap_or(&line.socket);
        table.add_row([
            cell(&socket.display().to_string()),
            cell(line.kind.as_deref().unwrap_or("-")),
            cell(line.name.as_deref().unwrap_or("-")),
            cell(line.endpoint.as_deref().unwrap_or("-")),
            cell(&line.versions.join(",")),
            state(line.state).to_owned(),
            line.error.as_deref().map(plain).unwrap_or_default(),
        ]);
    }
    table.trim_fmt()
}

fn state(answer: Answer) -> &'static str {
    match answer {
        Answer::Answers => "Answers",
        Answer::Silent => "Silent",
        Answer::Dead => "Dead",
        Answer::Broken => "Broken",
    }
}

fn cell(text: &str) -> String {
    if text.is_empty() {
        return "-".to_owned();
    }
    let text = plain(text);
    if text.chars().count() <= LONGEST {
        return text;
    }
    text.chars().take(LONGEST).chain("...".chars()).collect()
}
