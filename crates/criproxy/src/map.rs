//! Texts by key: labels, annotations, the files of cgroup v2, the environment.
//!
//! Hooks are told in text alone. A value that is none cannot be shown to them, so they cannot mean
//! it when they leave it out: it always stays. What a hook changes is changed where it stands, and
//! what it adds comes last.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use wharf_wire::{Message, WireError};

use crate::edit::{Edit, Field, Value};

/// Texts by key.
pub(crate) type Map = BTreeMap<String, String>;
/// What is to become of some keys.
pub(crate) type Changes<'a> = BTreeMap<&'a str, Option<&'a str>>;

/// The numbers of an entry.
const KEY: u32 = 1;
const VALUE: u32 = 2;

/// The texts that a message holds in field `number`: of repeated keys the last, which is the one
/// that counts.
pub(crate) fn read(message: &Message, number: u32) -> Result<Map, WireError> {
    let pairs = message.map(number)?;
    Ok(texts(pairs.iter().map(|(key, value)| (&key[..], &value[..]))))
}

/// The texts among pairs, which may repeat keys.
pub(crate) fn texts<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Map {
    let mut map = Map::new();
    for (key, value) in pairs {
        let Ok(key) = str::from_utf8(key) else { continue };
        match str::from_utf8(value) {
            Ok(value) => map.insert(key.to_owned(), value.to_owned()),
            Err(_) => map.remove(key),
        };
    }
    map
}

/// What an answer that is merged into a map key by key changes in it.
pub(crate) fn merged(
    sent: &Map,
    answer: &Map,
    field: impl Fn(String) -> Field,
) -> impl Iterator<Item = Edit> {
    let changed = answer.iter().filter(|(key, value)| sent.get(*key) != Some(*value));
    changed.map(move |(key, value)| Edit {
        field: field(key.clone()),
        from: sent.get(key).into(),
        to: Value::Text(value.clone()),
    })
}

/// Texts as fields with their values.
pub(crate) fn fields(
    map: &Map,
    field: impl Fn(String) -> Field,
) -> impl Iterator<Item = (Field, Value)> {
    map.iter().map(move |(key, value)| (field(key.clone()), Value::Text(value.clone())))
}

/// Sets or removes a key.
pub(crate) fn apply(map: &mut Map, key: &str, to: &Value) {
    match to.text() {
        Some(text) => map.insert(key.to_owned(), text.to_owned()),
        None => map.remove(key),
    };
}

/// The changes of the keys that `key` finds in edits; the last one to a key counts.
pub(crate) fn changes<'a>(
    edits: &'a [Edit],
    key: impl Fn(&'a Field) -> Option<&'a str>,
) -> Changes<'a> {
    edits.iter().filter_map(|edit| Some((key(&edit.field)?, edit.to.text()))).collect()
}

/// Changes keys of the map, or of the list of entries, that a message holds in field `number`.
pub(crate) fn write(
    message: &mut Message,
    number: u32,
    changes: &Changes<'_>,
) -> Result<(), WireError> {
    if changes.is_empty() {
        return Ok(());
    }
    let pairs = message.map(number)?;
    let mut entries: Vec<Option<Bytes>> = message.all(number)?.into_iter().map(Some).collect();
    let mut last = HashMap::new();
    for (index, (key, value)) in pairs.iter().enumerate() {
        let Some((key, change)) = find(changes, key) else { continue };
        let is_text = str::from_utf8(value).is_ok();
        if is_text && change.is_none() {
            entries[index] = None;
        }
        last.insert(key, (index, is_text));
    }
    for (key, text) in changes.iter().filter_map(|(key, text)| Some((*key, (*text)?))) {
        match last.get(key) {
            Some(&(index, true)) if pairs[index].1 == text => {}
            Some(&(index, true)) => {
                let mut entry = Message::parse(entries[index].take().unwrap_or_default())?;
                entry.set_bytes(VALUE, text.as_bytes());
                entries[index] = Some(entry.encode());
            }
            _ => {
                let mut entry = Message::default();
                entry.set_bytes(KEY, key.as_bytes());
                entry.set_bytes(VALUE, text.as_bytes());
                entries.push(Some(entry.encode()));
            }
        }
    }
    let entries: Vec<Bytes> = entries.into_iter().flatten().collect();
    message.set_all(number, &entries);
    Ok(())
}

/// Makes the texts that a message holds in field `number` equal to `whole`.
pub(crate) fn replace(message: &mut Message, number: u32, whole: &Map) -> Result<(), WireError> {
    let present = read(message, number)?;
    let gone = present.keys().map(|key| (key.as_str(), None));
    let there = whole.iter().map(|(key, value)| (key.as_str(), Some(value.as_str())));
    write(message, number, &gone.chain(there).collect())
}

/// The text that a message holds in field `number`.
pub(crate) fn text(message: &Message, number: u32) -> Result<String, WireError> {
    let bytes = message.bytes(number)?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn find<'a>(changes: &Changes<'a>, key: &[u8]) -> Option<(&'a str, Option<&'a str>)> {
    let key = str::from_utf8(key).ok()?;
    changes.get_key_value(key).map(|(key, change)| (*key, *change))
}

#[cfg(test)]
mod tests;
