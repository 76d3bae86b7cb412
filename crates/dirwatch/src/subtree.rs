//! Parts of a map by path. Paths compare by component, so a path and all below it are neighbours.

use std::{
    collections::BTreeMap,
    ops::Bound,
    path::{Path, PathBuf},
};

/// The entry of a path and all below it.
pub(crate) fn below<'a, V>(
    map: &'a BTreeMap<PathBuf, V>,
    top: &'a Path,
) -> impl Iterator<Item = (&'a PathBuf, &'a V)> {
    map.range::<Path, _>((Bound::Included(top), Bound::Unbounded))
        .take_while(move |(path, _)| path.starts_with(top))
}

/// As [`below`], to change the values.
pub(crate) fn below_mut<'a, V>(
    map: &'a mut BTreeMap<PathBuf, V>,
    top: &'a Path,
) -> impl Iterator<Item = (&'a PathBuf, &'a mut V)> {
    map.range_mut::<Path, _>((Bound::Included(top), Bound::Unbounded))
        .take_while(move |(path, _)| path.starts_with(top))
}

/// Takes what [`below`] shows out of the map.
pub(crate) fn remove_below<V>(map: &mut BTreeMap<PathBuf, V>, top: &Path) -> Vec<V> {
    let paths: Vec<PathBuf> = below(map, top).map(|(path, _)| path.clone()).collect();
    paths.iter().filter_map(|path| map.remove(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_only_starts_the_same_is_not_below() {
        let paths = ["/r/a", "/r/a/b", "/r/a/b/c", "/r/a-b", "/r/a.b/c", "/r/ab", "/r", "/s"];
        let mut map: BTreeMap<PathBuf, &str> =
            paths.iter().map(|path| (PathBuf::from(path), *path)).collect();
        let found: Vec<&str> = below(&map, Path::new("/r/a")).map(|(_, path)| *path).collect();
        assert_eq!(found, ["/r/a", "/r/a/b", "/r/a/b/c"]);
        assert_eq!(remove_below(&mut map, Path::new("/r/a")), found);
        assert_eq!(map.len(), paths.len() - found.len());
        assert_eq!(remove_below(&mut map, Path::new("/r/nothing")), [""; 0]);
    }
}
