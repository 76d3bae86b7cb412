//! One command line for several commands that run in one process.

use super::{FlagError, FlagSet, Parsed, Spec, help, suggest, walk};
use crate::gates::FeatureGates;

/// The flags of commands that run in one process.
///
/// A flag applies to every command that has it; with a command's name as its prefix, like
/// `--attacher-timeout`, it applies to that command only, and overrides the other.
#[derive(Clone, Debug)]
pub struct CombinedFlags {
    own: FlagSet,
    whole: Vec<&'static str>,
    members: Vec<Member>,
}

#[derive(Clone, Debug)]
struct Member {
    name: &'static str,
    set: FlagSet,
}

/// A combined command line, split into arguments.
#[derive(Debug)]
pub struct CombinedLine<'a> {
    flags: &'a CombinedFlags,
    own: Parsed,
    args: Vec<FlagArg>,
}

#[derive(Debug)]
struct FlagArg {
    /// The index of its command; `None` for every command that has the flag.
    member: Option<usize>,
    flag: String,
    value: String,
}

impl CombinedFlags {
    /// `own` are flags of the process itself. `whole` names flags of the commands that have one
    /// value for all commands.
    pub fn new(own: FlagSet, whole: impl IntoIterator<Item = &'static str>) -> Self {
        Self { own, whole: whole.into_iter().collect(), members: Vec::new() }
    }

    /// Adds a command.
    pub fn join(&mut self, name: &'static str, set: FlagSet) {
        self.members.push(Member { name, set });
    }

    /// Splits a command line, given without the command's own name. Flags have the syntax of Go's
    /// `flag`.
    pub fn read(&self, line: Vec<String>) -> Result<CombinedLine<'_>, FlagError> {
        let (mut own, mut args) = (Vec::new(), Vec::new());
        let mut rest = line.into_iter();
        while let Some(arg) = rest.next() {
            let body = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-'));
            let Some(body) = body.filter(|body| !body.is_empty()) else {
                return Err(self.error(format_args!("unexpected argument: {arg}")));
            };
            let (name, value) = walk::split_value(body);
            if matches!(name, "h" | "help") {
                return Err(FlagError::Help(self.help()));
            }
            let (member, flag, spec) = self.find(name)?;
            let value = match value {
                Some(value) => value.to_owned(),
                None if spec.default.is_bare() => "true".to_owned(),
                None => rest
                    .next()
                    .ok_or_else(|| self.error(format_args!("flag needs an argument: --{name}")))?,
            };
            let flag = flag.to_owned();
            if self.own.find(&flag).is_some() {
                own.push(format!("--{flag}={value}"));
            } else {
                args.push(FlagArg { member, flag, value });
            }
        }
        Ok(CombinedLine { flags: self, own: self.own.parse(own)?, args })
    }

    /// The flag's command, its name there, and one of its declarations.
    fn find<'a>(&'a self, name: &'a str) -> Result<(Option<usize>, &'a str, &'a Spec), FlagError> {
        let sets = || [&self.own].into_iter().chain(self.members.iter().map(|member| &member.set));
        if let Some(spec) = sets().find_map(|set| set.spec(name)) {
            return Ok((None, name, spec));
        }
        for (index, member) in self.members.iter().enumerate() {
            let flag = name.strip_prefix(member.name).and_then(|rest| rest.strip_prefix('-'));
            let Some((flag, spec)) = flag.and_then(|flag| Some((flag, member.set.spec(flag)?)))
            else {
                continue;
            };
            if self.whole.contains(&flag) {
                return Err(self
                    .error(format_args!("--{name}: --{flag} has one value for all controllers")));
            }
            return Ok((Some(index), flag, spec));
        }
        let mut message = format!("flag provided but not defined: --{name}");
        let own = sets().flat_map(|set| set.specs.iter().map(|spec| spec.name.to_owned()));
        let prefixed = self.members.iter().flat_map(|member| {
            member.set.specs.iter().map(|spec| format!("{}-{}", member.name, spec.name))
        });
        let known: Vec<String> = own.chain(prefixed).collect();
        if let Some(nearest) = suggest::nearest(name, known.iter().map(String::as_str)) {
            message.push_str(&format!("\nDid you mean --{nearest}?"));
        }
        Err(self.error(message))
    }

    fn error(&self, message: impl std::fmt::Display) -> FlagError {
        self.own.usage_error(message, None)
    }

    /// Lists flags that several commands share once, the others with their command.
    fn help(&self) -> String {
        let specs = |member: &'_ Member| -> Vec<Spec> { member.set.specs.clone() };
        let all: Vec<Spec> = self.members.iter().flat_map(specs).collect();
        let shared = |spec: &Spec| {
            let mut same = all.iter().filter(|other| other.name == spec.name);
            let alike = same.clone().all(|other| other.is_like(spec));
            alike && same.by_ref().nth(1).is_some()
        };
        let mut sections = vec![("Flags".to_owned(), self.own.specs.clone())];
        let (whole, several): (Vec<Spec>, Vec<Spec>) = unique(&all)
            .into_iter()
            .filter(|spec| shared(spec) || self.whole.contains(&spec.name))
            .partition(|spec| self.whole.contains(&spec.name));
        sections.push(("Flags for the process".to_owned(), whole));
        sections.push(("Flags for each controller that has them".to_owned(), several));
        for member in &self.members {
            let rest = member.set.specs.iter();
            let rest = rest.filter(|it| !shared(it) && !self.whole.contains(&it.name)).cloned();
            sections.push((format!("Flags of {}", member.name), rest.collect()));
        }
        help::render_sections(&self.own, &sections)
    }
}

impl CombinedLine<'_> {
    /// The values of the process's own flags.
    pub fn own(&self) -> &Parsed {
        &self.own
    }

    /// The values for these commands. Each flag must belong to one of them at least.
    pub fn parse(&self, members: &[&str]) -> Result<Vec<Parsed>, FlagError> {
        let joined: Vec<(usize, &Member)> = self
            .flags
            .members
            .iter()
            .enumerate()
            .filter(|(_, member)| members.contains(&member.name))
            .collect();
        let mut lines = vec![Vec::new(); joined.len()];
        // Arguments for one command come last, so that they override.
        let (shared, single): (Vec<&FlagArg>, Vec<&FlagArg>) =
            self.args.iter().partition(|arg| arg.member.is_none());
        for arg in shared.into_iter().chain(single) {
            let mut taken = Distribution::new(arg);
            for (line, (index, member)) in lines.iter_mut().zip(&joined) {
                if arg.member.is_none_or(|wanted| wanted == *index) {
                    line.extend(taken.by(&member.set));
                }
            }
            taken.check().map_err(|message| self.flags.error(message))?;
        }
        joined.iter().zip(lines).map(|((_, member), line)| member.set.parse(line)).collect()
    }
}

/// Distributes an argument to commands. Each command gets the feature gates that it has.
struct Distribution<'a> {
    arg: &'a FlagArg,
    left: Vec<&'a str>,
    found: bool,
}

impl<'a> Distribution<'a> {
    fn new(arg: &'a FlagArg) -> Self {
        Self { arg, left: arg.value.split(',').collect(), found: false }
    }

    /// The argument for this command, if it has the flag.
    fn by(&mut self, set: &FlagSet) -> Option<String> {
        let FlagArg { flag, value, member } = self.arg;
        let spec = set.spec(flag)?;
        self.found = true;
        let Some(gates) = spec.default.as_any().downcast_ref::<FeatureGates>() else {
            self.left.clear();
            return Some(format!("--{flag}={value}"));
        };
        let knows = |item: &&str| {
            member.is_some() || gates.knows(item.split('=').next().unwrap_or_default().trim())
        };
        self.left.retain(|item| !knows(item));
        let known: Vec<&str> = value.split(',').filter(knows).collect();
        Some(format!("--{flag}={}", known.join(",")))
    }

    fn check(self) -> Result<(), String> {
        let FlagArg { flag, .. } = self.arg;
        if !self.found {
            return Err(format!("--{flag}: none of --controllers has this flag"));
        }
        match self.left.iter().find(|item| !item.trim().is_empty()) {
            Some(item) => Err(format!("--{flag}: none of --controllers knows {item}")),
            None => Ok(()),
        }
    }
}

fn unique(specs: &[Spec]) -> Vec<Spec> {
    let mut unique: Vec<Spec> = Vec::new();
    for spec in specs {
        if unique.iter().all(|other| other.name != spec.name) {
            unique.push(spec.clone());
        }
    }
    unique
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::Flag, *};
    use crate::gates::{Gate, Stage};

    const FAST: Gate = Gate::new("Fast", Stage::Alpha, false);
    const SAFE: Gate = Gate::new("Safe", Stage::Beta, true);

    struct Both {
        combined: CombinedFlags,
        list: Flag<Vec<String>>,
        attach: One,
        resize: One,
    }

    struct One {
        timeout: Flag<Duration>,
        elect: Flag<bool>,
        gates: Flag<FeatureGates>,
    }

    fn one(set: &mut FlagSet, gate: Gate) -> One {
        set.string("kubeconfig", "", "A file.");
        One {
            timeout: set.duration("timeout", Duration::from_secs(15), "A time."),
            elect: set.bool("leader-election", false, "Elect."),
            gates: set.feature_gates(FeatureGates::new(&[gate])),
        }
    }

    fn both() -> Both {
        let mut own = FlagSet::new("wharf both", "Both.");
        let list = own.string_list("controllers", vec!["*".into()], "Which.");
        let mut combined = CombinedFlags::new(own, ["kubeconfig"]);
        let mut set = FlagSet::new("wharf both", "");
        let attach = one(&mut set, FAST);
        set.string("only-here", "", "Of the attacher.");
        combined.join("attacher", set);
        let mut set = FlagSet::new("wharf both", "");
        let resize = one(&mut set, SAFE);
        combined.join("resizer", set);
        Both { combined, list, attach, resize }
    }

    fn refused(args: &[&str], members: &[&str]) -> String {
        let both = both();
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        let parsed = both.combined.read(args).and_then(|line| line.parse(members).map(drop));
        parsed.unwrap_err().to_string()
    }

    #[test]
    fn a_flag_goes_to_all_and_counts_less_than_one_with_a_name() {
        let both = both();
        let args = [
            "--attacher-timeout",
            "1s",
            "-timeout=2s",
            "--leader-election",
            "--controllers",
            "a,b",
        ];
        let line = both.combined.read(args.map(str::to_owned).to_vec()).unwrap();
        assert_eq!(line.own().get(&both.list), &["a", "b"]);
        let parsed = line.parse(&["attacher", "resizer"]).unwrap();
        assert_eq!(*parsed[0].get(&both.attach.timeout), Duration::from_secs(1));
        assert_eq!(*parsed[1].get(&both.resize.timeout), Duration::from_secs(2));
        assert!(*parsed[0].get(&both.attach.elect) && *parsed[1].get(&both.resize.elect));
    }

    #[test]
    fn a_gate_goes_to_those_that_know_it() {
        let both = both();
        let line = both.combined.read(vec!["--feature-gates=Fast=true,Safe=false".into()]).unwrap();
        let parsed = line.parse(&["attacher", "resizer"]).unwrap();
        assert!(parsed[0].get(&both.attach.gates).enabled(&FAST));
        assert!(!parsed[1].get(&both.resize.gates).enabled(&SAFE));
        assert!(
            refused(&["--feature-gates=Fast=true"], &["resizer"]).contains("Fast=true"),
            "a gate of nobody"
        );
    }

    #[test]
    fn what_nobody_has_is_refused() {
        for (args, members, wanted) in [
            (&["--only-here=x"][..], &["resizer"][..], "none of --controllers has this flag"),
            (&["--resizer-only-here=x"], &["resizer"], "not defined: --resizer-only-here"),
            (&["--attacher-timeout=1s"], &["resizer"], "none of --controllers has this flag"),
            (&["--attacher-kubeconfig=x"], &["attacher"], "one value for all controllers"),
            (&["--atacher-timeout=1s"], &["attacher"], "Did you mean --attacher-timeout?"),
            (&["word"], &["attacher"], "unexpected argument: word"),
            (&["--timeout"], &["attacher"], "flag needs an argument: --timeout"),
            (&["--timeout=x"], &["attacher"], "invalid value \"x\" for flag -timeout"),
        ] {
            let text = refused(args, members);
            assert!(text.contains(wanted), "{args:?}: {text}");
        }
    }

    #[test]
    fn help_has_shared_flags_once() {
        let text = refused(&["--help"], &[]);
        assert_eq!(text.matches("--timeout duration").count(), 1, "{text}");
        assert_eq!(text.matches("--kubeconfig string").count(), 1, "{text}");
        assert_eq!(text.matches("--feature-gates").count(), 2, "{text}");
        assert!(text.contains("Flags of attacher:\n"), "{text}");
    }
}
