use super::{Dialect, FlagSet, Spec};

/// The width of help, in columns.
const COLUMNS: usize = 100;

/// The indent of a flag's description, on the line below its name.
const INDENT: usize = 6;

/// The help of a command.
pub(super) fn render(set: &FlagSet) -> String {
    render_sections(set, &[("Flags".to_owned(), set.specs.clone())])
}

/// The help of a command with its flags in sections.
pub(super) fn render_sections(set: &FlagSet, sections: &[(String, Vec<Spec>)]) -> String {
    let mut text = String::new();
    push_wrapped(&mut text, &set.about, 0);
    text.push_str(&format!("\nUsage: {} [flags]\n", set.command));
    let mut retired = Vec::new();
    for (title, specs) in sections {
        let (current, deprecated): (Vec<&Spec>, Vec<&Spec>) =
            specs.iter().partition(|spec| spec.deprecated.is_none());
        push_section(&mut text, title, current);
        retired.extend(deprecated);
    }
    push_section(&mut text, "Deprecated flags, accepted with a warning", retired);
    text.push_str(match set.dialect {
        Dialect::Go => "\nFlags may be written with one dash or two: -x=value, -x value.",
        Dialect::Pflag => "\nFlags are written --x=value or --x value.",
    });
    text.push_str(" Switches take a value only after =.");
    text
}

/// The help of one flag.
pub(super) fn flag(set: &FlagSet, index: usize) -> String {
    let mut text = String::new();
    push_flag(&mut text, &set.specs[index]);
    text
}

fn push_section(text: &mut String, title: &str, mut specs: Vec<&Spec>) {
    if specs.is_empty() {
        return;
    }
    specs.sort_by_key(|spec| spec.name);
    text.push_str(&format!("\n{title}:\n"));
    for spec in specs {
        push_flag(text, spec);
    }
}

fn push_flag(text: &mut String, spec: &Spec) {
    let dashes = if spec.name.len() == 1 { "-" } else { "--" };
    let kind = spec.default.kind();
    let gap = if kind.is_empty() { "" } else { " " };
    text.push_str(&format!("  {dashes}{}{gap}{kind}\n", spec.name));
    let mut about = spec.help.clone();
    if let Some(advice) = &spec.deprecated {
        about.push_str(&format!(" Deprecated: {advice}."));
    }
    let default = spec.default.show();
    if !matches!(default.as_str(), "" | "0" | "0s") {
        about.push_str(&format!(" (default {default})"));
    }
    push_wrapped(text, about.trim_start(), INDENT);
}

/// Writes indented paragraphs, wrapped between words; line breaks are kept.
fn push_wrapped(text: &mut String, paragraphs: &str, indent: usize) {
    for line in paragraphs.lines() {
        let mut column = 0;
        for word in line.split_whitespace() {
            let width = word.chars().count();
            if column > 0 && column + 1 + width > COLUMNS {
                text.push('\n');
                column = 0;
            }
            if column == 0 {
                text.push_str(&" ".repeat(indent));
                column = indent;
            } else {
                text.push(' ');
                column += 1;
            }
            text.push_str(word);
            column += width;
        }
        text.push('\n');
    }
}
