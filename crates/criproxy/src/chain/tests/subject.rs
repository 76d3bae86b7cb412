//! A container of which CPU shares, annotations and environment can be changed.

use std::collections::BTreeMap;

use wharf_proto::hooks::{ContainerResourceHookRequest, ContainerResourceHookResponse};

use crate::{
    HookPoint,
    edit::{Amount, Edit, Field, Value},
    partial::Inexpressible,
    subject::{Reading, Subject},
};

#[derive(Debug)]
pub(super) struct Container;

impl Subject for Container {
    type Request = ContainerResourceHookRequest;
    type Response = ContainerResourceHookResponse;

    fn edits(
        _: HookPoint,
        sent: &ContainerResourceHookRequest,
        answer: &ContainerResourceHookResponse,
        _: Reading,
    ) -> Vec<Edit> {
        let shares = |resources: Option<&wharf_proto::hooks::LinuxContainerResources>| {
            resources.map_or(0, |resources| resources.cpu_shares)
        };
        let from = shares(sent.container_resources.as_ref());
        let to = shares(answer.container_resources.as_ref());
        let mut edits = Vec::new();
        if to != 0 && to != from {
            let (from, to) = (Value::Number(from), Value::Number(to));
            edits.push(Edit { field: Field::Amount(Amount::CpuShares), from, to });
        }
        merged(
            Field::Annotation,
            &sent.container_annotations,
            &answer.container_annotations,
            &mut edits,
        );
        merged(Field::Env, &sent.container_envs, &answer.container_envs, &mut edits);
        edits
    }

    fn named_edits(
        point: HookPoint,
        sent: &ContainerResourceHookRequest,
        answer: &ContainerResourceHookResponse,
    ) -> Result<Vec<Edit>, Inexpressible> {
        if answer.removals.is_some() {
            return Err(Inexpressible { field: "removals".to_owned(), reason: "not here" });
        }
        Ok(Self::edits(point, sent, answer, Reading::default()))
    }

    fn fields(request: &ContainerResourceHookRequest) -> Vec<(Field, Value)> {
        crate::container::Container::fields(request)
    }

    fn apply(request: &mut ContainerResourceHookRequest, edits: &[Edit]) {
        for Edit { field, to, .. } in edits {
            match (field, to) {
                (Field::Amount(Amount::CpuShares), Value::Number(shares)) => {
                    request.container_resources.get_or_insert_default().cpu_shares = *shares;
                }
                (Field::Annotation(key), Value::Text(value)) => {
                    request.container_annotations.insert(key.clone(), value.clone());
                }
                (Field::Env(key), Value::Text(value)) => {
                    request.container_envs.insert(key.clone(), value.clone());
                }
                other => panic!("{other:?} is never asked for"),
            }
        }
    }
}

fn merged(
    field: fn(String) -> Field,
    sent: &BTreeMap<String, String>,
    answer: &BTreeMap<String, String>,
    edits: &mut Vec<Edit>,
) {
    let text =
        |value: Option<&String>| value.map_or(Value::Absent, |text| Value::Text(text.clone()));
    for key in answer.keys().filter(|key| sent.get(*key) != answer.get(*key)) {
        let (from, to) = (text(sent.get(key)), text(answer.get(key)));
        edits.push(Edit { field: field(key.clone()), from, to });
    }
}
