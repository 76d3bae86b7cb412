//! Kills a process at a fault point.

use std::{os::unix::process::ExitStatusExt, process::Command};

use wharf_csi_sdk::fault::FaultPlan;

wharf_csi_sdk::fault_points! {
    enum Point { Begun, Done }
}

/// Set in the environment of the child process.
const CHILD: &str = "WHARF_SDK_FAULT_CHILD";

#[test]
fn a_plan_kills_the_process() {
    if let Ok(plan) = std::env::var(CHILD) {
        let plan = FaultPlan::parse::<Point>(&plan).unwrap();
        plan.reach(Point::Begun).unwrap();
        plan.reach(Point::Done).unwrap();
        return;
    }
    for (plan, signal) in [("kill:Done", Some(9)), ("kill:Done:2", None), ("", None)] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "fault::a_plan_kills_the_process"]).env(CHILD, plan);
        assert_eq!(child.output().unwrap().status.signal(), signal, "{plan}");
    }
}
