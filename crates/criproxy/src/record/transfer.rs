//! Records on their way from one process to its successor.

use std::{collections::BTreeSet, fmt};

use base64::{Engine, engine::general_purpose::STANDARD};
use prost::Message;
use serde::{Deserialize, Serialize};
use wharf_proto::hooks::PodSandboxHookRequest;

use super::{Carried, Container, Guess, Pod, Records, container_question};
use crate::edit::Edit;

/// What is known of one pod or container. Questions are encoded messages, in base64.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Entry {
    Pod {
        id: String,
        question: String,
        /// Changes by hooks; none where they are not known.
        carried: Option<Vec<Edit>>,
        changed_by: String,
        stopped: bool,
        /// Servers that were notified of its end while others were not.
        #[serde(rename = "told")]
        notified: BTreeSet<String>,
    },
    Container {
        id: String,
        pod: String,
        question: String,
        stopped: bool,
        #[serde(rename = "told")]
        notified: BTreeSet<String>,
    },
    /// There is no such pod or container any more.
    Gone { id: String },
}

impl Records {
    /// The entries of all pods and containers. From here on changes are noted for
    /// [`Records::changed`].
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut state = self.state();
        state.changed = Some(BTreeSet::new());
        let pods = state.pods.iter().map(|(id, pod)| pod.entry(id, state.notified_of(id)));
        let containers = state.containers.values();
        pods.chain(containers.map(|own| own.entry(state.notified_of(&own.id)))).collect()
    }

    /// The entries of what has changed since this was last asked.
    pub(crate) fn changed(&self) -> Vec<Entry> {
        let mut state = self.state();
        let Some(changed) = state.changed.replace(BTreeSet::new()) else { return Vec::new() };
        let mut entries = Vec::new();
        for id in changed {
            let (pod, container) = (state.pods.get(&*id), state.containers.get(&*id));
            entries.extend(pod.map(|pod| pod.entry(&id, state.notified_of(&id))));
            entries.extend(container.map(|container| container.entry(state.notified_of(&id))));
            if pod.is_none() && container.is_none() {
                entries.push(Entry::Gone { id: id.into() });
            }
        }
        entries
    }

    /// Notes no changes any more.
    pub(crate) fn ignore_changes(&self) {
        self.state().changed = None;
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        let mut state = self.state();
        state.pods = Default::default();
        state.containers = Default::default();
        state.members = Default::default();
        state.notified = Default::default();
    }

    /// Takes an entry in, in place of what is known.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn take(&self, entry: Entry) -> Result<(), String> {
        let unreadable = |id: &str| format!("the record of {id} cannot be read");
        let (id, notified) = match entry {
            Entry::Gone { id } => {
                self.remove_container(&id);
                self.remove_pod(&id);
                return Ok(());
            }
            Entry::Pod { id, question, carried, changed_by, stopped, notified } => {
                let question = STANDARD.decode(&question).map_err(|_| unreadable(&id))?;
                let question =
                    PodSandboxHookRequest::decode(&*question).map_err(|_| unreadable(&id))?;
                let carried = match carried {
                    Some(edits) => Carried::Known(edits.into()),
                    None => Carried::Forgotten(Guess::default()),
                };
                let pod = Pod::of(&question, carried, stopped).changed_by(changed_by);
                self.commit_pod(&id, pod);
                (id, notified)
            }
            Entry::Container { id, pod, question, stopped, notified } => {
                let bytes = STANDARD.decode(&question).map_err(|_| unreadable(&id))?;
                let question = Message::decode(&*bytes).map_err(|_| unreadable(&id))?;
                let container = Container::new(&pod, &id, question);
                let container = if stopped { container.stopped() } else { container };
                self.put_container(container);
                (id, notified)
            }
        };
        self.state().notified.remove(&*id);
        self.set_notified(&id, notified);
        Ok(())
    }
}

impl fmt::Debug for Entry {
    /// Questions hold the values of environments.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, id) = match self {
            Entry::Pod { id, .. } => ("Pod", id),
            Entry::Container { id, .. } => ("Container", id),
            Entry::Gone { id } => ("Gone", id),
        };
        f.debug_struct(kind).field("id", id).finish_non_exhaustive()
    }
}

impl Pod {
    fn entry(&self, id: &str, notified: BTreeSet<String>) -> Entry {
        Entry::Pod {
            id: id.to_owned(),
            question: STANDARD.encode(self.question().encode_to_vec()),
            carried: match &self.carried {
                Carried::Known(edits) => Some(edits.to_vec()),
                Carried::Forgotten(_) => None,
            },
            changed_by: self.changed_by.to_string(),
            stopped: self.stopped,
            notified,
        }
    }
}

impl Container {
    fn entry(&self, notified: BTreeSet<String>) -> Entry {
        Entry::Container {
            id: self.id.as_ref().to_owned(),
            pod: self.pod.as_ref().to_owned(),
            question: STANDARD.encode(container_question(&self.question).encode_to_vec()),
            stopped: self.stopped,
            notified,
        }
    }
}

#[cfg(test)]
mod tests {
    use wharf_proto::hooks::{ContainerResourceHookRequest, PodSandboxMetadata};

    use super::*;
    use crate::edit::{Field, Value};

    fn records() -> Records {
        let records = Records::default();
        let pod_meta = PodSandboxMetadata { name: "p".into(), ..Default::default() };
        let pod = PodSandboxHookRequest { pod_meta: Some(pod_meta), ..Default::default() };
        let (from, to) = (Value::Absent, Value::Text("v".into()));
        let edit = Edit { field: Field::Label("k".into()), from, to };
        records.commit_pod("pod", Pod::new(&pod, vec![edit]).changed_by("a.json".into()));
        let question = ContainerResourceHookRequest {
            container_envs: [("KEY".to_owned(), "s3cret".to_owned())].into(),
            ..Default::default()
        };
        for id in ["c1", "c2"] {
            records.commit_container(Container::new("pod", id, question.clone()));
        }
        records.stop_container("c2");
        records.set_notified("c1", BTreeSet::from(["a.json".to_owned()]));
        records
    }

    fn sorted(mut entries: Vec<Entry>) -> Vec<String> {
        let mut lines: Vec<_> =
            entries.drain(..).map(|entry| serde_json::to_string(&entry).unwrap()).collect();
        lines.sort();
        lines
    }

    #[test]
    fn everything_arrives() {
        let (ours, theirs) = (records(), Records::default());
        for line in sorted(ours.entries()) {
            theirs.take(serde_json::from_str(&line).unwrap()).unwrap();
        }
        assert_eq!(sorted(ours.entries()), sorted(theirs.entries()));
        assert_eq!(theirs.notified("c1"), BTreeSet::from(["a.json".to_owned()]));
        assert!(theirs.container("c2").unwrap().is_stopped());
        assert_eq!(theirs.containers_of("pod").len(), 2);
        assert_eq!(theirs.pod("pod").unwrap().who_changed_it(), Some("a.json"));
    }

    #[test]
    fn changes_are_told_once_and_only_when_somebody_wants_to_know() {
        let records = records();
        assert_eq!(records.changed(), []);
        let all = records.entries();
        assert_eq!((all.len(), records.changed().len()), (3, 0));
        records.stop_container("c1");
        records.remove_container("c2");
        let changed = sorted(records.changed());
        assert_eq!(changed.len(), 2, "{changed:?}");
        assert!(changed[0].contains("\"container\"") && changed[1].contains("gone"), "{changed:?}");
        assert_eq!(records.changed(), []);
        records.ignore_changes();
        records.remove_pod("pod");
        assert_eq!(records.changed(), []);
    }

    #[test]
    fn a_record_that_cannot_be_read_is_refused_and_values_are_not_shown() {
        let (notified, id) = (BTreeSet::new(), "c".to_owned());
        let question = "not base64!".to_owned();
        let entry = Entry::Container { id, pod: "p".into(), question, stopped: false, notified };
        assert!(Records::default().take(entry).unwrap_err().contains("record of c"));
        assert!(!format!("{:?}", records().entries()).contains("question"));
    }
}
