//! Fault points: places where a test can kill, fail or delay a driver.
//!
//! To show that a driver survives a crash anywhere, tests must kill it everywhere. A driver
//! declares its points as an enum with [`fault_points!`](crate::fault_points) and passes each one
//! to its plan:
//!
//! ```
//! use wharf_csi_sdk::error::CreateVolumeError;
//! use wharf_csi_sdk::fault::FaultPlan;
//!
//! wharf_csi_sdk::fault_points! {
//!     /// Steps of this driver.
//!     pub enum Step {
//!         /// The intent is on disk, nothing else is.
//!         CreateIntended,
//!         /// The image is there under its temporary name.
//!         CreateFilled,
//!     }
//! }
//!
//! fn create(faults: &FaultPlan) -> Result<(), CreateVolumeError> {
//!     // ... commit the intent
//!     faults.reach(Step::CreateIntended)?;
//!     // ... make the image
//!     faults.reach(Step::CreateFilled)?;
//!     // ... rename it
//!     Ok(())
//! }
//! create(&FaultPlan::none())?;
//! # Ok::<(), CreateVolumeError>(())
//! ```
//!
//! A crash suite starts the driver once for each of `Step::ALL`, with a plan that kills it there
//! ([`FaultPlan::parse`] reads `kill:CreateFilled` from a flag), then starts it again and repeats
//! the call. With [`FaultPlan::watching`], [`FaultPlan::passed`] counts how often each point was
//! passed, which shows points that no call reaches.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::process::{Signal, getpid, kill_process};

/// Length of a stall: long compared with other operations, short compared with deadlines.
pub const STALL: Duration = Duration::from_millis(300);

/// An enum of fault points, declared with [`fault_points!`](crate::fault_points).
pub trait FaultPoint: Copy + 'static {
    /// All points, in the order of their declaration.
    const ALL: &'static [Self];

    /// Name of the point in the code.
    fn name(self) -> &'static str;
}

/// Declares an enum of fault points that implements [`FaultPoint`].
#[macro_export]
macro_rules! fault_points {
    ($(#[$doc:meta])* $visibility:vis enum $name:ident { $($(#[$point_doc:meta])* $point:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visibility enum $name {
            $($(#[$point_doc])* $point,)+
        }

        impl $crate::fault::FaultPoint for $name {
            const ALL: &'static [Self] = &[$(Self::$point,)+];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$point => stringify!($point),)+
                }
            }
        }
    };
}

/// A plan of at most one fault. Clones share it. The default, [`none`](FaultPlan::none), costs
/// nothing.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan(Option<Arc<Plan>>);

impl FaultPlan {
    /// A plan without a fault.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// A plan without a fault, for which [`passed`](FaultPlan::passed) counts.
    #[must_use]
    pub fn watching() -> Self {
        Self::with(None)
    }

    /// The process kills itself with SIGKILL when it reaches the point for the `nth` time, counted
    /// from 1.
    #[must_use]
    pub fn kill_at(point: impl FaultPoint, nth: u32) -> Self {
        Self::with(Some(Fault { action: Action::Kill, point: point.name(), nth }))
    }

    /// The operation fails when it reaches the point for the `nth` time, counted from 1.
    #[must_use]
    pub fn fail_at(point: impl FaultPoint, nth: u32) -> Self {
        Self::with(Some(Fault { action: Action::Fail, point: point.name(), nth }))
    }

    /// The operation stalls for [`STALL`] when it reaches the point for the `nth` time, counted
    /// from 1.
    #[must_use]
    pub fn stall_at(point: impl FaultPoint, nth: u32) -> Self {
        Self::with(Some(Fault { action: Action::Stall, point: point.name(), nth }))
    }

    /// Parses the value of a flag: `kill:POINT`, `fail:POINT` or `stall:POINT`, each with an
    /// optional `:N` for the n-th time. An empty value is no fault.
    pub fn parse<P: FaultPoint>(text: &str) -> Result<Self, FaultPlanError> {
        if text.is_empty() {
            return Ok(Self::none());
        }
        let syntax = || FaultPlanError::Syntax(text.to_owned());
        let (action, rest) = text.split_once(':').ok_or_else(syntax)?;
        let action = match action {
            "kill" => Action::Kill,
            "fail" => Action::Fail,
            "stall" => Action::Stall,
            _ => return Err(syntax()),
        };
        let (name, nth) = rest.split_once(':').unwrap_or((rest, "1"));
        let nth = nth.parse().ok().filter(|nth| *nth > 0).ok_or_else(syntax)?;
        let point = P::ALL.iter().map(|point| point.name()).find(|known| *known == name);
        let point = point.ok_or_else(|| FaultPlanError::Unknown {
            name: name.to_owned(),
            known: P::ALL.iter().map(|point| point.name()).collect::<Vec<_>>().join(", "),
        })?;
        Ok(Self::with(Some(Fault { action, point, nth })))
    }

    /// Passes a point. The plan may kill the process here, or fail or stall the operation.
    pub fn reach(&self, point: impl FaultPoint) -> Result<(), FaultInjected> {
        let Some(plan) = &self.0 else { return Ok(()) };
        let point = point.name();
        let passed = {
            let mut passed = plan.passed.lock().unwrap_or_else(PoisonError::into_inner);
            let count = passed.entry(point).or_default();
            *count += 1;
            *count
        };
        match &plan.fault {
            Some(fault) if fault.point == point && fault.nth == passed => match fault.action {
                Action::Kill => kill_self(),
                Action::Fail => Err(FaultInjected { point }),
                Action::Stall => {
                    stall();
                    Ok(())
                }
            },
            _ => Ok(()),
        }
    }

    /// Returns how often each point was passed.
    #[must_use]
    pub fn passed(&self) -> BTreeMap<&'static str, u32> {
        let Some(plan) = &self.0 else { return BTreeMap::new() };
        plan.passed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn with(fault: Option<Fault>) -> Self {
        Self(Some(Arc::new(Plan { fault, passed: Mutex::default() })))
    }
}

/// The failure of [`FaultPlan::fail_at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the fault plan fails the operation at {point}")]
pub struct FaultInjected {
    point: &'static str,
}

/// Why a text is not a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultPlanError {
    /// The text does not have the syntax of a plan.
    #[error(
        "fault plan {0:?}: expected kill:POINT, fail:POINT or stall:POINT, and :N after it for the n-th time"
    )]
    Syntax(String),
    /// The driver has no such point.
    #[error("fault plan: unknown fault point {name:?}, expected one of {known}")]
    Unknown {
        /// The unknown name.
        name: String,
        /// The names of all points.
        known: String,
    },
}

#[derive(Debug)]
struct Plan {
    fault: Option<Fault>,
    passed: Mutex<BTreeMap<&'static str, u32>>,
}

#[derive(Debug)]
struct Fault {
    action: Action,
    point: &'static str,
    nth: u32,
}

#[derive(Debug)]
enum Action {
    Kill,
    Fail,
    Stall,
}

#[expect(clippy::disallowed_methods, reason = "the stall is the fault")]
fn stall() {
    std::thread::sleep(STALL);
}

/// Ends the process without cleanup.
fn kill_self() -> ! {
    let killed = kill_process(getpid(), Signal::KILL);
    // The signal is pending for this process: the next line runs only if kill failed.
    unreachable!("a process may send itself SIGKILL: {killed:?}")
}

impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_deref() {
            None => Ok(()),
            Some(Plan { fault: None, .. }) => f.write_str("watching"),
            Some(Plan { fault: Some(Fault { action, point, nth }), .. }) => {
                let action = match action {
                    Action::Kill => "kill",
                    Action::Fail => "fail",
                    Action::Stall => "stall",
                };
                write!(f, "{action}:{point}:{nth}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fault_points! {
        enum Point { First, Second }
    }

    #[test]
    fn a_plan_fails_the_operation_once() {
        let plan = FaultPlan::fail_at(Point::Second, 2);
        assert_eq!(plan.reach(Point::First), Ok(()));
        assert_eq!(plan.reach(Point::Second), Ok(()));
        assert_eq!(plan.reach(Point::Second), Err(FaultInjected { point: "Second" }));
        assert_eq!(plan.reach(Point::Second), Ok(()));
        assert_eq!(plan.passed(), BTreeMap::from([("First", 1), ("Second", 3)]));
    }

    #[test]
    fn no_plan_is_no_fault() {
        for plan in [FaultPlan::none(), FaultPlan::watching(), FaultPlan::default()] {
            assert!(Point::ALL.iter().all(|point| plan.reach(*point).is_ok()));
        }
        assert_eq!(FaultPlan::none().passed(), BTreeMap::new());
    }

    #[test]
    fn plans_are_read_from_a_flag() {
        let parse = FaultPlan::parse::<Point>;
        for (text, read) in [
            ("", ""),
            ("kill:First", "kill:First:1"),
            ("fail:Second:3", "fail:Second:3"),
            ("stall:First", "stall:First:1"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), read);
        }
        for text in ["kill", "burn:First", "kill:First:0", "kill:First:x", "kill:First:1:2"] {
            assert_eq!(parse(text).unwrap_err(), FaultPlanError::Syntax(text.to_owned()));
        }
        let unknown = parse("kill:Third").unwrap_err().to_string();
        assert!(unknown.contains("expected one of First, Second"), "{unknown}");
    }
}
