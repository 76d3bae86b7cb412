//! A container's resources. The message has the same numbers in the runtime's protocol and in that
//! of hooks.

use wharf_proto::hooks::{HugepageLimit, LinuxContainerResources as Resources};
use wharf_wire::{Message, WireError};

use crate::{
    edit::{Amount, Cpuset, Edit, Field, Value},
    map,
    subject::Reading,
};

const HUGEPAGE_LIMITS: u32 = 8;
const PAGE_SIZE: u32 = 1;
const LIMIT: u32 = 2;
const UNIFIED: u32 = 9;

/// What the kernel takes.
const OOM_SCORES: std::ops::RangeInclusive<i64> = -1000..=1000;

/// The resources in a message of the runtime's protocol.
pub(crate) fn read(message: &Message) -> Result<Resources, WireError> {
    let mut resources = Resources::default();
    for amount in Amount::ALL {
        *amount.of_mut(&mut resources) =
            message.varint(amount.number())?.unwrap_or_default().cast_signed();
    }
    for cpuset in Cpuset::ALL {
        *cpuset.of_mut(&mut resources) = map::text(message, cpuset.number())?;
    }
    for limit in message.all(HUGEPAGE_LIMITS)? {
        let limit = Message::parse(limit)?;
        resources.hugepage_limits.push(HugepageLimit {
            page_size: map::text(&limit, PAGE_SIZE)?,
            limit: limit.varint(LIMIT)?.unwrap_or_default(),
        });
    }
    resources.unified = map::read(message, UNIFIED)?;
    Ok(resources)
}

/// What an answer changes. Numbers that the protocol cannot tell from unset ones are no wish;
/// cpusets always are, so that an answer without them clears them.
pub(crate) fn answered(sent: &Resources, answer: &Resources, reading: Reading) -> Vec<Edit> {
    let amounts = Amount::ALL.into_iter().filter_map(|amount| {
        let (from, to) = (amount.of(sent), amount.of(answer));
        let edit = || Edit {
            field: Field::Amount(amount),
            from: Value::Number(from),
            to: Value::Number(to),
        };
        (is_wish(amount, to, reading) && from != to).then(edit)
    });
    let cpusets = Cpuset::ALL.into_iter().filter_map(|cpuset| {
        let (from, to) = (cpuset.of(sent), cpuset.of(answer));
        let edit = || Edit {
            field: Field::Cpuset(cpuset),
            from: Value::Text(from.to_owned()),
            to: Value::Text(to.to_owned()),
        };
        (from != to).then(edit)
    });
    let unified = map::merged(&sent.unified, &answer.unified, Field::Unified);
    amounts.chain(cpusets).chain(unified).collect()
}

/// Whether a number of an answer says something.
fn is_wish(amount: Amount, value: i64, reading: Reading) -> bool {
    match amount {
        Amount::OomScoreAdj => {
            OOM_SCORES.contains(&value) && (value != 0 || reading.zero_oom_score_adj)
        }
        _ => amount.is_set(value),
    }
}

/// The numbers of an answer that are neither zero nor taken.
pub(crate) fn out_of_range(sent: &Resources, answer: &Resources, reading: Reading) -> Vec<Edit> {
    let pairs = Amount::ALL.into_iter().map(|amount| (amount, amount.of(sent), amount.of(answer)));
    pairs
        .filter(|(amount, from, to)| *to != 0 && from != to && !is_wish(*amount, *to, reading))
        .map(|(amount, from, to)| Edit {
            field: Field::Amount(amount),
            from: Value::Number(from),
            to: Value::Number(to),
        })
        .collect()
}

/// The fields that have a value.
pub(crate) fn fields(resources: &Resources) -> Vec<(Field, Value)> {
    let amounts = Amount::ALL.into_iter().map(|amount| (amount, amount.of(resources)));
    let amounts = amounts.filter(|(_, value)| *value != 0);
    let amounts = amounts.map(|(amount, value)| (Field::Amount(amount), Value::Number(value)));
    let cpusets = Cpuset::ALL.into_iter().map(|cpuset| (cpuset, cpuset.of(resources)));
    let cpusets = cpusets.filter(|(_, value)| !value.is_empty());
    let cpusets =
        cpusets.map(|(cpuset, value)| (Field::Cpuset(cpuset), Value::Text(value.to_owned())));
    amounts.chain(cpusets).chain(map::fields(&resources.unified, Field::Unified)).collect()
}

/// Brings an edit into resources.
pub(crate) fn apply(resources: &mut Resources, edit: &Edit) {
    match &edit.field {
        Field::Amount(amount) => *amount.of_mut(resources) = edit.to.number(),
        Field::Cpuset(cpuset) => {
            *cpuset.of_mut(resources) = edit.to.text().unwrap_or_default().to_owned();
        }
        Field::Unified(key) => map::apply(&mut resources.unified, key, &edit.to),
        Field::Label(_) | Field::Annotation(_) | Field::CgroupParent | Field::Env(_) => {}
    }
}

/// Brings edits into the resources in a message of the runtime's protocol.
pub(crate) fn write(message: &mut Message, edits: &[Edit]) -> Result<(), WireError> {
    for edit in edits {
        match &edit.field {
            Field::Amount(amount) => {
                message.set_varint(amount.number(), edit.to.number().cast_unsigned());
            }
            Field::Cpuset(cpuset) => {
                let cpus = edit.to.text().unwrap_or_default();
                message.set_bytes(cpuset.number(), cpus.as_bytes());
            }
            _ => {}
        }
    }
    let unified = map::changes(edits, |field| match field {
        Field::Unified(key) => Some(key),
        _ => None,
    });
    map::write(message, UNIFIED, &unified)
}

/// What is remembered of a container, with what a request to update it asks for. That has no say in
/// the OOM score and the hugepages.
pub(crate) fn overlaid(mut known: Resources, update: &Resources) -> Resources {
    for amount in Amount::ALL {
        let value = amount.of(update);
        if amount != Amount::OomScoreAdj && amount.is_set(value) {
            *amount.of_mut(&mut known) = value;
        }
    }
    for cpuset in Cpuset::ALL {
        let cpus = cpuset.of(update);
        if !cpus.is_empty() {
            *cpuset.of_mut(&mut known) = cpus.to_owned();
        }
    }
    known.unified.extend(update.unified.clone());
    known
}

/// Puts `whole` in place of the resources in a message of the runtime's protocol, but for
/// hugepages, in which hooks have no say, and for what hooks cannot know.
pub(crate) fn replace(message: &mut Message, whole: &Resources) -> Result<(), WireError> {
    for amount in Amount::ALL {
        message.set_varint(amount.number(), amount.of(whole).cast_unsigned());
    }
    for cpuset in Cpuset::ALL {
        message.set_bytes(cpuset.number(), cpuset.of(whole).as_bytes());
    }
    map::replace(message, UNIFIED, &whole.unified)
}

impl Amount {
    pub(crate) const ALL: [Amount; 6] = [
        Amount::CpuPeriod,
        Amount::CpuQuota,
        Amount::CpuShares,
        Amount::MemoryLimit,
        Amount::MemorySwapLimit,
        Amount::OomScoreAdj,
    ];

    fn number(self) -> u32 {
        match self {
            Amount::CpuPeriod => 1,
            Amount::CpuQuota => 2,
            Amount::CpuShares => 3,
            Amount::MemoryLimit => 4,
            Amount::OomScoreAdj => 5,
            Amount::MemorySwapLimit => 10,
        }
    }

    /// Whether a value says something. A quota of -1 lifts the limit.
    fn is_set(self, value: i64) -> bool {
        if self == Amount::CpuQuota { value != 0 } else { value > 0 }
    }

    /// Why no request can carry a value, if none can. Zero is none.
    pub(crate) fn fault(self, value: i64) -> Option<&'static str> {
        match self {
            Amount::OomScoreAdj => {
                (!OOM_SCORES.contains(&value)).then_some("expected a number from -1000 to 1000")
            }
            Amount::CpuQuota => (value < -1).then_some("expected a number above 0, or -1"),
            _ => (value < 0).then_some("expected a number above 0"),
        }
    }

    pub(crate) fn of(self, resources: &Resources) -> i64 {
        match self {
            Amount::CpuPeriod => resources.cpu_period,
            Amount::CpuQuota => resources.cpu_quota,
            Amount::CpuShares => resources.cpu_shares,
            Amount::MemoryLimit => resources.memory_limit_in_bytes,
            Amount::MemorySwapLimit => resources.memory_swap_limit_in_bytes,
            Amount::OomScoreAdj => resources.oom_score_adj,
        }
    }

    fn of_mut(self, resources: &mut Resources) -> &mut i64 {
        match self {
            Amount::CpuPeriod => &mut resources.cpu_period,
            Amount::CpuQuota => &mut resources.cpu_quota,
            Amount::CpuShares => &mut resources.cpu_shares,
            Amount::MemoryLimit => &mut resources.memory_limit_in_bytes,
            Amount::MemorySwapLimit => &mut resources.memory_swap_limit_in_bytes,
            Amount::OomScoreAdj => &mut resources.oom_score_adj,
        }
    }
}

impl Cpuset {
    pub(crate) const ALL: [Cpuset; 2] = [Cpuset::Cpus, Cpuset::Mems];

    fn number(self) -> u32 {
        match self {
            Cpuset::Cpus => 6,
            Cpuset::Mems => 7,
        }
    }

    pub(crate) fn of(self, resources: &Resources) -> &str {
        match self {
            Cpuset::Cpus => &resources.cpuset_cpus,
            Cpuset::Mems => &resources.cpuset_mems,
        }
    }

    fn of_mut(self, resources: &mut Resources) -> &mut String {
        match self {
            Cpuset::Cpus => &mut resources.cpuset_cpus,
            Cpuset::Mems => &mut resources.cpuset_mems,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
