//! The class of snapshots without a class.

use std::sync::Arc;

use wharf_cluster::VolumeSnapshotClass;
use wharf_facts::annotation;

use super::failure::TakeRefusal;

/// The only default class of the driver.
pub(super) fn default_class(
    classes: Vec<Arc<VolumeSnapshotClass>>,
    driver: &str,
) -> Result<Arc<VolumeSnapshotClass>, TakeRefusal> {
    let is_default = |class: &Arc<VolumeSnapshotClass>| {
        let marked = class.metadata.annotations.get(annotation::DEFAULT_SNAPSHOT_CLASS);
        marked == Some("true") && class.driver == driver
    };
    let mut defaults: Vec<_> = classes.into_iter().filter(is_default).collect();
    match (defaults.pop(), defaults.len()) {
        (None, _) => Err(TakeRefusal::NoDefaultClass),
        (Some(class), 0) => Ok(class),
        (Some(_), others) => Err(TakeRefusal::ManyDefaultClasses(others + 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, driver: &str, default: &str) -> Arc<VolumeSnapshotClass> {
        let mut class = VolumeSnapshotClass { driver: driver.into(), ..Default::default() };
        class.metadata.name = name.to_owned();
        class.metadata.annotations =
            [(annotation::DEFAULT_SNAPSHOT_CLASS, default)].into_iter().collect();
        Arc::new(class)
    }

    #[test]
    fn one_default_of_the_driver_is_taken() {
        let chosen = default_class(
            vec![class("a", "d", "false"), class("b", "d", "true"), class("c", "e", "true")],
            "d",
        );
        assert_eq!(chosen.unwrap().metadata.name, "b");
        let none = default_class(vec![class("a", "d", "false")], "d");
        assert!(matches!(none, Err(TakeRefusal::NoDefaultClass)));
        let many = default_class(vec![class("a", "d", "true"), class("b", "d", "true")], "d");
        assert!(matches!(many, Err(TakeRefusal::ManyDefaultClasses(2))));
    }
}
