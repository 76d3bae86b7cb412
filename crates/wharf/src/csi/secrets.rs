use std::{collections::BTreeMap, fmt, path::PathBuf};

use clap::Args;

use super::failure::Failure;

/// The text shown instead of a secret.
const STRIPPED: &str = "***stripped***";

/// Flags for secrets. Their values are parsed after clap, which would quote a wrong one in its
/// error.
#[derive(Args)]
pub(crate) struct SecretFlags {
    /// A secret for the call. It is never printed, but other users of this machine can see it in
    /// the process list
    #[arg(long = "secret", value_name = "KEY=VALUE", global = true)]
    pairs: Vec<String>,
    /// Secrets from a file: KEY=VALUE lines, or a JSON object of strings
    #[arg(long = "secrets-file", value_name = "FILE", global = true)]
    file: Option<PathBuf>,
}

/// Secrets for a driver. Debug shows their keys and never their values.
#[derive(Default)]
pub(crate) struct Secrets(BTreeMap<String, String>);

impl Secrets {
    /// Reads the secrets of the file and of the command line, which win.
    pub(crate) fn read(flags: &SecretFlags) -> Result<Self, Failure> {
        let mut secrets = BTreeMap::new();
        if let Some(file) = &flags.file {
            let wrong =
                |text: String| Failure::Usage(format!("--secrets-file {}: {text}", file.display()));
            let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
            secrets = parse(&text).map_err(wrong)?;
        }
        for (index, pair) in flags.pairs.iter().enumerate() {
            let (key, value) =
                pair.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(|| {
                    let number = index + 1;
                    Failure::Usage(format!(
                        "--secret number {number}: expected KEY=VALUE (not shown here)"
                    ))
                })?;
            secrets.insert(key.to_owned(), value.to_owned());
        }
        Ok(Self(secrets))
    }

    /// The secrets as a map for a request.
    pub(crate) fn get(&self) -> BTreeMap<String, String> {
        self.0.clone()
    }

    /// `text` without the values of secrets: a driver may have put one into its answer.
    pub(crate) fn strip(&self, text: &str) -> String {
        let mut values: Vec<&String> = self.0.values().filter(|value| !value.is_empty()).collect();
        // Longest first: replacing a value that is part of a longer one would leave the rest of
        // that.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values
            .into_iter()
            .fold(text.to_owned(), |text, value| text.replace(value.as_str(), STRIPPED))
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}

fn parse(text: &str) -> Result<BTreeMap<String, String>, String> {
    if text.trim_start().starts_with('{') {
        // The parser's message may quote a value, so only the position is shown.
        return serde_json::from_str(text)
            .map_err(|error| format!("line {}: expected a JSON object of strings", error.line()));
    }
    let mut secrets = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line
            .split_once('=')
            .filter(|(key, _)| !key.is_empty())
            .ok_or_else(|| format!("line {}: expected KEY=VALUE", index + 1))?;
        secrets.insert(key.to_owned(), value.to_owned());
    }
    Ok(secrets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_lines_or_json_and_errors_show_no_value() {
        let expected = BTreeMap::from([("user".to_owned(), "a=b".to_owned())]);
        assert_eq!(parse("# who\n\nuser=a=b\n"), Ok(expected.clone()));
        assert_eq!(parse("{\"user\": \"a=b\"}"), Ok(expected));
        for wrong in ["ok=1\nhunter2", "{\"user\": \"hunter2\", 3}", "{\"hunter2\": 3}", "=hunter2"]
        {
            let error = parse(wrong).unwrap_err();
            assert!(error.contains("expected") && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn values_are_stripped_whole() {
        let secrets = Secrets(BTreeMap::from([
            ("a".to_owned(), "pass".to_owned()),
            ("b".to_owned(), "password".to_owned()),
            ("c".to_owned(), String::new()),
        ]));
        assert_eq!(secrets.strip("no password, no pass"), format!("no {STRIPPED}, no {STRIPPED}"));
        assert_eq!(format!("{secrets:?}"), "{\"a\", \"b\", \"c\"}");
    }
}
