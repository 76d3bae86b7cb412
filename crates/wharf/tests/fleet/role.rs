//! The controllers' rights in deploy/: a verb too many is refused.

use serde_json::{Value, json};
use wharf_testkit::{
    cluster::Cluster,
    deploy::{self, CONTROLLERS, Subject},
};

use crate::program::COMBINED;

/// A user with the roles that a provisioner had in Go's manifests, at the release that is here.
pub(crate) const OLDER: &str = "older-provisioner";

/// A user that is granted its roles late.
pub(crate) const RIGHTLESS: &str = "granted-late";

/// A user with the roles that Go's attacher has, which grant no events.
pub(crate) const EVENTLESS: &str = "attacher-without-events";

/// A user with the roles of a provisioner that may not write to claims.
pub(crate) const READER: &str = "reading-provisioner";

/// Grants each controller's user the roles of its file, and the combined user the roles of all
/// files.
pub(crate) async fn grant(cluster: &Cluster) {
    let mut roles = [older(), eventless(), of_reader()].concat();
    for user in CONTROLLERS {
        let subjects = [Subject::User(user), Subject::User(COMBINED)];
        roles.extend(deploy::roles(user, "default", &subjects).unwrap());
    }
    cluster.apply_all(&roles).await.unwrap();
}

/// The roles of a provisioner, without what has been added since.
fn older() -> Vec<Value> {
    changed(OLDER, |rules| {
        rules.retain(|rule| rule["resources"] != json!(["volumeattributesclasses"]));
        for rule in rules {
            if rule["resources"] == json!(["volumesnapshots"]) {
                rule["verbs"] = json!(["get", "list"]);
            }
        }
    })
}

/// The roles of a provisioner that may not write to claims.
fn of_reader() -> Vec<Value> {
    changed(READER, |rules| {
        for rule in rules {
            if rule["resources"] == json!(["persistentvolumeclaims"]) {
                rule["verbs"] = json!(["get", "list", "watch"]);
            }
        }
    })
}

/// The roles of a provisioner, with other rules, for a user.
fn changed(user: &'static str, change: impl Fn(&mut Vec<Value>)) -> Vec<Value> {
    let mut roles = deploy::roles("provisioner", "default", &[Subject::User(user)]).unwrap();
    for role in &mut roles {
        role["metadata"]["name"] = json!(user);
        if let Some(named) = role.get_mut("roleRef") {
            named["name"] = json!(user);
        }
        if let Some(rules) = role.get_mut("rules").and_then(Value::as_array_mut) {
            change(rules);
        }
    }
    roles
}

/// The roles of an attacher, without events.
fn eventless() -> Vec<Value> {
    let mut roles = deploy::roles("attacher", "default", &[Subject::User(EVENTLESS)]).unwrap();
    for role in &mut roles {
        role["metadata"]["name"] = json!(EVENTLESS);
        if let Some(named) = role.get_mut("roleRef") {
            named["name"] = json!(EVENTLESS);
        }
        if let Some(rules) = role.get_mut("rules").and_then(Value::as_array_mut) {
            rules.retain(|rule| rule["resources"] != json!(["events"]));
        }
    }
    roles
}

/// Verbs that a role might be given by habit, and that no controller of ours or Go's uses.
#[test]
fn roles_grant_nothing_by_habit() {
    for controller in CONTROLLERS {
        for role in deploy::roles(controller, "default", &[]).unwrap() {
            for rule in role["rules"].as_array().into_iter().flatten() {
                let verbs = |name: &str| rule["verbs"].as_array().unwrap().contains(&json!(name));
                let of = |name: &str| rule["resources"].as_array().unwrap().contains(&json!(name));
                for (resource, unused) in [
                    ("secrets", &["list", "watch", "create", "update", "patch", "delete"][..]),
                    ("events", &["get", "list", "watch", "update", "delete"]),
                    ("leases", &["list", "delete", "patch"]),
                    ("volumesnapshots", &["create", "delete"]),
                    ("persistentvolumeclaims", &["create", "delete"]),
                ] {
                    let granted: Vec<_> = unused.iter().filter(|verb| verbs(verb)).collect();
                    assert!(
                        !of(resource) || granted.is_empty(),
                        "{controller}: {granted:?} {resource}"
                    );
                }
                let all =
                    ["resources", "verbs", "apiGroups"].iter().any(|key| rule[key] == json!(["*"]));
                assert!(!all, "{controller}: {rule}");
            }
        }
    }
}
