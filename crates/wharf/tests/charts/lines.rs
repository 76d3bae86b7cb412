//! Command lines of sidecars as charts, manifests and operators write them, from `charts.txt`.

/// One container of a chart.
pub(crate) struct Line {
    pub(crate) chart: &'static str,
    pub(crate) variables: Vec<(&'static str, &'static str)>,
    pub(crate) program: &'static str,
    pub(crate) args: Vec<&'static str>,
}

pub(crate) fn lines() -> Vec<Line> {
    let (mut lines, mut chart) = (Vec::new(), "");
    for text in include_str!("charts.txt").lines().filter(|line| !line.is_empty()) {
        if let Some(title) = text.strip_prefix("# ") {
            chart = title;
            continue;
        }
        let mut words = text.split(' ').peekable();
        let mut variables = Vec::new();
        while let Some(variable) = words.peek().and_then(|word| word.split_once('=')) {
            variables.push(variable);
            words.next();
        }
        let program = words.next().unwrap();
        lines.push(Line { chart, variables, program, args: words.collect() });
    }
    lines
}
