//! The operation for one class in one segment.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wharf_cluster::{ApiFailure, CsiStorageCapacity, Part, Patch, Size, StorageClass};
use wharf_facts::label;
use wharf_proto::csi::{GetCapacityRequest, Topology};
use wharf_reconcile::{Attempt, Operation, Outcome, note_error};
use wharf_uds::code_name;

use super::{Capacities, Item};

/// Leaves an item exactly one correct object, or none.
pub(super) struct CapacityOperation(pub(super) Arc<Capacities>, pub(super) CancellationToken);

/// Why it failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("GetCapacity: rpc error: code = {} desc = {}", code_name(.0.code()), .0.message())]
    Driver(Box<Status>),
    #[error(transparent)]
    Api(#[from] ApiFailure),
}

/// The driver's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Capacity {
    available: Size,
    largest: Option<Size>,
}

impl Operation<Item> for CapacityOperation {
    async fn run(&self, item: Item, _: Attempt) -> Outcome {
        let Self(capacities, stop) = self;
        let work = async {
            match capacities.reconcile(&item).await {
                Ok(()) => Outcome::Done,
                Err(error) => {
                    note_error(&error);
                    tracing::warn!(class = item.class, place = ?item.segment, %error, "failed to publish capacity, retrying");
                    Outcome::Retry
                }
            }
        };
        stop.run_until_cancelled(work).await.unwrap_or(Outcome::Done)
    }
}

impl Capacities {
    async fn reconcile(&self, item: &Item) -> Result<(), Failure> {
        let mut objects = self.objects.store().indexed(CsiStorageCapacity::BY_PLACE, &item.key());
        let class = self.classes.get(&item.class);
        let class = class.filter(|_| self.desired().contains(item));
        objects.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        let kept = usize::from(class.is_some()).min(objects.len());
        for obsolete in objects.drain(kept..) {
            self.delete(&obsolete).await?;
        }
        let Some(class) = class else { return Ok(()) };
        let capacity = self.ask(item, &class).await?;
        match objects.first() {
            None => drop(self.objects.create(&self.object(item, capacity)).await?),
            Some(object) => {
                let Some(patch) = self.correction(object, capacity) else { return Ok(()) };
                match self.objects.patch(&object.metadata, Part::Main, &patch).await {
                    // The watch reports the deletion, which queues the item again.
                    Ok(_) | Err(ApiFailure::NotFound { .. }) => {}
                    Err(failure) => return Err(failure.into()),
                }
            }
        }
        Ok(())
    }

    /// The changes that an object needs for this `capacity` and the owner.
    fn correction(&self, object: &CsiStorageCapacity, capacity: Capacity) -> Option<Patch> {
        let owner = self.new_owner(object);
        if published(object) == capacity && owner.is_none() {
            return None;
        }
        let mut fields = json!({
            "capacity": capacity.available.to_string(),
            "maximumVolumeSize": capacity.largest.map(|size| size.to_string()),
        });
        Some(match owner {
            None => Patch::Merge(fields),
            Some(owner) => {
                fields["metadata"] = json!({ "ownerReferences": [owner] });
                Patch::Strategic(fields)
            }
        })
    }

    /// The owner, if the object does not have it: a provisioner without an owner, or with a
    /// different one, created it.
    fn new_owner(&self, object: &CsiStorageCapacity) -> Option<Value> {
        let mut owner = self.owner.get()?.clone()?;
        if object.owners.iter().any(|own| owner["uid"] == *own.uid) {
            return None;
        }
        // An object can have only one managing owner; it is deleted with the last of its owners.
        if object.owners.iter().any(|own| own.controller) {
            owner["controller"] = json!(false);
        }
        Some(owner)
    }

    async fn ask(&self, item: &Item, class: &StorageClass) -> Result<Capacity, Failure> {
        let call = GetCapacityRequest {
            volume_capabilities: Vec::new(),
            parameters: class.parameters.to_map(),
            accessible_topology: Some(Topology { segments: item.segment.clone() }),
        };
        let mut controller = self.driver.controller();
        let send = |request| async move { controller.get_capacity(request).await };
        let answer = self.driver.call("GetCapacity", send, call).await;
        let answer = answer.map_err(|status| Failure::Driver(Box::new(status)))?;
        Ok(Capacity {
            available: Size(answer.available_capacity),
            largest: answer.maximum_volume_size.map(Size),
        })
    }

    async fn delete(&self, object: &CsiStorageCapacity) -> Result<(), ApiFailure> {
        match self.objects.delete(&object.metadata).await {
            Ok(_) | Err(ApiFailure::NotFound { .. }) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    fn object(&self, item: &Item, capacity: Capacity) -> Value {
        let mut object = json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIStorageCapacity",
            "metadata": {
                "generateName": "csisc-",
                "namespace": self.options.namespace,
                "labels": {
                    label::CAPACITY_DRIVER: self.driver_name,
                    label::CAPACITY_MANAGED_BY: self.managed_by,
                },
            },
            "storageClassName": item.class,
            "nodeTopology": { "matchLabels": item.segment },
            "capacity": capacity.available.to_string(),
        });
        if let Some(largest) = capacity.largest {
            object["maximumVolumeSize"] = json!(largest.to_string());
        }
        if let Some(Some(owner)) = self.owner.get() {
            object["metadata"]["ownerReferences"] = json!([owner]);
        }
        object
    }
}

fn published(object: &CsiStorageCapacity) -> Capacity {
    let available = object.capacity.unwrap_or_default();
    Capacity { available, largest: object.maximum_volume_size }
}
