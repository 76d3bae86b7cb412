//! A container's environment: a list in CRI, a map in the hook protocol.

use wharf_wire::{Message, WireError};

use crate::{
    edit::{Edit, Field},
    map::{self, Map},
};

/// The list in ContainerConfig, whose entries are encoded like those of a map.
const ENVS: u32 = 6;

/// The variables of a container's config that are text.
pub(crate) fn read(config: &Message) -> Result<Map, WireError> {
    map::read(config, ENVS)
}

/// The changes of an answer. An answer with any variable replaces the whole environment.
pub(crate) fn replaced<'a>(sent: &'a Map, answer: &'a Map) -> impl Iterator<Item = Edit> {
    let gone = sent.keys().filter(|key| !answer.is_empty() && !answer.contains_key(*key));
    let changed = answer.iter().filter(|(key, value)| sent.get(*key) != Some(*value));
    changed.map(|(key, _)| key).chain(gone).map(|key| Edit {
        field: Field::Env(key.clone()),
        from: sent.get(key).into(),
        to: answer.get(key).into(),
    })
}

/// Changes variables of a container's config.
pub(crate) fn write(config: &mut Message, edits: &[Edit]) -> Result<(), WireError> {
    let changes = map::changes(edits, |field| match field {
        Field::Env(key) => Some(key),
        _ => None,
    });
    map::write(config, ENVS, &changes)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use wharf_proto::cri::{ContainerConfig, KeyValue};

    use super::*;
    use crate::edit::Value;

    fn config(envs: &[(&str, &str)]) -> Message {
        let env = |&(key, value): &(&str, &str)| KeyValue { key: key.into(), value: value.into() };
        let config = ContainerConfig { envs: envs.iter().map(env).collect(), ..Default::default() };
        Message::parse(config.encode_to_vec().into()).unwrap()
    }

    #[test]
    fn a_list_becomes_a_map() {
        assert_eq!(read(&config(&[])), Ok(Map::new()));
        assert_eq!(read(&config(&[("a", "1")])).unwrap()["a"], "1");
        let several = read(&config(&[("a", "1"), ("b", "2"), ("a", "3")])).unwrap();
        assert_eq!((several.len(), several["a"].as_str(), several["b"].as_str()), (2, "3", "2"));
    }

    #[test]
    fn an_answer_replaces_the_set_unless_it_is_empty() {
        let sent = read(&config(&[("a", "1"), ("b", "2"), ("c", "3")])).unwrap();
        assert_eq!(replaced(&sent, &Map::new()).count(), 0);
        assert_eq!(replaced(&sent, &sent).count(), 0);
        let answer = [("b", "2"), ("c", "new"), ("d", "4")];
        let answer = answer.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let edits: Vec<_> = replaced(&sent, &answer).collect();
        let edit = |key: &str, from: Option<&str>, to: Option<&str>| {
            let value =
                |text: Option<&str>| text.map_or(Value::Absent, |own| Value::Text(own.into()));
            Edit { field: Field::Env(key.into()), from: value(from), to: value(to) }
        };
        let expected = [
            edit("c", Some("3"), Some("new")),
            edit("d", None, Some("4")),
            edit("a", Some("1"), None),
        ];
        assert_eq!(edits, expected);

        let mut config = config(&[("a", "1"), ("b", "2"), ("c", "3")]);
        write(&mut config, &edits).unwrap();
        assert_eq!(read(&config), Ok(answer));
    }
}
