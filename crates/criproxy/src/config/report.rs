//! A report on the files of a folder, for people.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use tokio::time::Instant;

use super::{
    Servers,
    catalog::{Catalog, News},
    folder,
};

/// How a proxy would read a folder.
#[derive(Debug)]
pub struct Report {
    folder: PathBuf,
    /// The servers, in the order in which they would be asked.
    pub servers: Servers,
    /// Faults for which files would be refused.
    pub errors: Vec<Finding>,
    /// Probable mistakes.
    pub warnings: Vec<Finding>,
}

/// A finding about a file or the folder.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file or folder.
    pub path: PathBuf,
    /// The finding.
    pub text: String,
}

/// Reads a folder like a starting proxy, and reports all findings. Blocks; creates nothing.
pub fn check(folder: &Path) -> Report {
    let mut report = Report {
        folder: folder.to_owned(),
        servers: Servers::default(),
        errors: Vec::new(),
        warnings: Vec::new(),
    };
    let of_folder = |text: &str| Finding { path: folder.to_owned(), text: text.to_owned() };
    let contents = match folder::read(folder) {
        Ok(Some(contents)) => contents,
        Ok(None) => {
            report.warnings.push(of_folder("no such folder: it is made when the proxy starts"));
            return report;
        }
        Err(error) => {
            report.errors.push(of_folder(&error.reason()));
            return report;
        }
    };
    for name in contents.others {
        report.warn(&name, "left alone: its name does not end in json");
    }
    let mut catalog = Catalog::default();
    for news in catalog.update(contents.servers, Instant::now()) {
        match news {
            News::Loaded { server, warnings } => {
                warnings.iter().for_each(|warning| report.warn(&server.name, warning));
            }
            News::Refused { name, error, .. } => {
                let path = folder.join(name);
                report.errors.push(Finding { path, text: error.to_string() });
            }
            News::Empty { name } => report.warn(&name, "empty: says nothing yet"),
            News::Removed { .. } | News::Missing { .. } => {}
        }
    }
    report.servers = catalog.servers();
    for (server, first) in catalog.servers().doubles() {
        report.warn(
            &server.name,
            format_args!("has the endpoint of {}: it is asked twice", first.name),
        );
    }
    report
}

impl Report {
    /// Whether no file would be refused.
    pub fn is_ok(&self) -> bool {
        self.errors.is_empty()
    }

    fn warn(&mut self, file: &str, text: impl fmt::Display) {
        self.warnings.push(Finding { path: self.folder.join(file), text: text.to_string() });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.servers.iter().next().is_none() {
            writeln!(f, "no hook servers in {}", self.folder.display())?;
        }
        for (number, server) in (1..).zip(self.servers.iter()) {
            writeln!(f, "{number}. {server}")?;
        }
        for error in &self.errors {
            writeln!(f, "error: {error}")?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.text)
    }
}
