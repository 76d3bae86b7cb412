//! Checks dependencies between crates.
//!
//! A crate depends on lower levels only. So crates of one level never depend on each other; those
//! of level 3 meet over the Kubernetes API or a socket. Dev-dependencies are not restricted; only
//! they and tasks may use the test bench.

use cargo_metadata::{Dependency, DependencyKind, Package};

/// The levels, lowest first. Crates that are missing here are tasks, the test bench or examples.
const LEVELS: &[&[&str]] = &[
    &["wharf-facts", "wharf-proto", "wharf-wire"],
    &["wharf-cli", "wharf-dirwatch", "wharf-mount", "wharf-reconcile", "wharf-uds"],
    &[
        "wharf-cluster",
        "wharf-cri",
        "wharf-csi",
        "wharf-csi-sdk",
        "wharf-hooks",
        "wharf-plugin",
        "wharf-store",
    ],
    &[
        "wharf-apiserver",
        "wharf-control",
        "wharf-criproxy",
        "wharf-driver",
        "wharf-registration",
        "wharf-sidecars",
        "wharf-volumes",
    ],
    &["wharf-node"],
    &["wharf"],
];

const BENCH: &str = "wharf-testkit";
const TASKS: &[&str] = &["xtask", "wharf-bench"];
/// The only crate that may use tonic's transport, and the features that enable it.
const TRANSPORT: (&str, &[&str]) =
    ("wharf-uds", &["channel", "default", "router", "server", "transport"]);

/// Breaches of the levels by `packages`, the crates of the workspace.
pub(super) fn check(packages: &[Package]) -> Vec<String> {
    packages.iter().flat_map(package).collect()
}

fn package(package: &Package) -> Vec<String> {
    let name = package.name.as_str();
    let example = package.manifest_path.as_str().contains("/examples/");
    let mut breaches = Vec::new();
    if level(name).is_none() && name != BENCH && !TASKS.contains(&name) && !example {
        breaches.push(format!("{name} has no level: give it one in xtask/src/tidy/levels.rs"));
    }
    let shipped = package.dependencies.iter().filter(|own| own.kind != DependencyKind::Development);
    for dependency in shipped {
        breaches.extend(breach(name, &dependency.name));
        breaches.extend(transport(name, dependency));
    }
    breaches
}

fn breach(name: &str, dependency: &str) -> Option<String> {
    if dependency == BENCH && !TASKS.contains(&name) {
        return Some(format!("{name} depends on {BENCH}: only dev-dependencies and tasks may"));
    }
    let (own, other) = (level(name)?, level(dependency)?);
    (other >= own).then(|| {
        format!("{name} (level {own}) depends on {dependency} (level {other}): only lower levels may be used")
    })
}

fn transport(name: &str, dependency: &Dependency) -> Option<String> {
    let (owner, features) = TRANSPORT;
    if name == owner || dependency.name != "tonic" {
        return None;
    }
    // `default` is enabled unless it is turned off.
    let on = |feature: &&&str| {
        dependency.features.iter().any(|own| own == **feature)
            || (**feature == "default" && dependency.uses_default_features)
    };
    features.iter().find(on).map(|feature| {
        format!("{name} takes tonic's feature {feature}: only {owner} names tonic's transport")
    })
}

fn level(name: &str) -> Option<usize> {
    LEVELS.iter().position(|level| level.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_uses_lower_levels_only() {
        assert_eq!(breach("wharf-registration", "wharf-csi"), None);
        assert_eq!(breach("wharf-registration", "tokio"), None);
        for dependency in ["wharf-registration", "wharf-driver", "wharf-node"] {
            assert!(breach("wharf-sidecars", dependency).is_some(), "{dependency}");
        }
    }

    #[test]
    fn the_bench_is_for_tests_and_tasks() {
        assert!(breach("wharf", BENCH).is_some());
        assert!(breach("plugin-example", BENCH).is_some());
        assert_eq!(breach("xtask", BENCH), None);
    }

    #[test]
    fn one_crate_names_the_transport() {
        let tonic = |features: &[&str], default: bool| -> Dependency {
            serde_json::from_value(serde_json::json!({
                "name": "tonic", "source": null, "req": "^0.14", "kind": null, "optional": false,
                "uses_default_features": default, "features": features, "target": null,
                "rename": null, "registry": null,
            }))
            .unwrap()
        };
        assert_eq!(transport("wharf-csi", &tonic(&["codegen"], false)), None);
        assert_eq!(transport("wharf-uds", &tonic(&["transport"], false)), None);
        assert!(transport("wharf-csi", &tonic(&["transport"], false)).is_some());
        assert!(transport("wharf-csi", &tonic(&[], true)).is_some());
    }
}
