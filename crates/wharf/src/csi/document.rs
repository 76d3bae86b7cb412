use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions, prost::Message};
use serde_json::Value;

/// Descriptors of all CSI messages, parsed once.
static MESSAGES: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(wharf_proto::FILE_DESCRIPTOR_SET)
        .expect("the build wrote the descriptors")
});

/// A message of CSI, by its name, as JSON. Fields have their CSI names and are present also with
/// default values; only unset optional fields are absent. Numbers are numbers; enum values are
/// names, or numbers if unknown.
pub(crate) fn of<M: Message>(name: &str, message: &M) -> Value {
    let descriptor = MESSAGES
        .get_message_by_name(&format!("csi.v1.{name}"))
        .expect("callers name a message of csi.v1");
    let mut dynamic = DynamicMessage::new(descriptor);
    dynamic.transcode_from(message).expect("a message decodes as itself");
    let options = SerializeOptions::new()
        .use_proto_field_name(true)
        .skip_default_fields(false)
        .stringify_64_bit_integers(false);
    dynamic
        .serialize_with_options(serde_json::value::Serializer, &options)
        .expect("messages of CSI hold nothing that JSON has no form for")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use wharf_proto::csi::{GetCapacityResponse, Snapshot, VolumeUsage, volume_usage::Unit};

    use super::*;

    #[test]
    fn fields_keep_their_names_and_unset_ones_are_there() {
        let usage =
            VolumeUsage { total: 1 << 60, unit: Unit::Bytes as i32, ..VolumeUsage::default() };
        assert_eq!(
            of("VolumeUsage", &usage),
            json!({ "available": 0, "total": 1_u64 << 60, "used": 0, "unit": "BYTES" })
        );
        let unknown = VolumeUsage { unit: 99, ..usage };
        assert_eq!(of("VolumeUsage", &unknown)["unit"], 99);
        let capacity = GetCapacityResponse {
            available_capacity: 5,
            maximum_volume_size: Some(3),
            ..Default::default()
        };
        assert_eq!(of("GetCapacityResponse", &capacity)["maximum_volume_size"], 3);
        let mut snapshot = Snapshot::default();
        snapshot.creation_time.get_or_insert_default().seconds = 1_700_000_000;
        assert_eq!(of("Snapshot", &snapshot)["creation_time"], "2023-11-14T22:13:20Z");
        assert_eq!(of("Snapshot", &snapshot)["ready_to_use"], false);
    }

    /// The compiler cannot check the names that callers pass, so this test does.
    #[test]
    fn answers_are_found_by_the_name_of_their_rpc() {
        for service in
            MESSAGES.services().filter(|service| service.parent_file().package_name() == "csi.v1")
        {
            for method in service.methods() {
                assert_eq!(method.output().name(), format!("{}Response", method.name()));
            }
        }
    }
}
