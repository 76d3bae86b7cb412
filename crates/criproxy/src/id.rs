//! Which pod or container a message is about.

use bytes::Bytes;
use wharf_wire::{WireError, last_bytes};

/// The id is the first field of every request that names a pod sandbox or a container, of
/// CreateContainer's for its pod, and of the answers to RunPodSandbox and CreateContainer.
const ID: u32 = 1;

/// The id in a request or an answer; empty if it has none.
pub(crate) fn of(message: &Bytes) -> Result<String, WireError> {
    let [id] = last_bytes(message, [ID])?;
    Ok(String::from_utf8_lossy(&id.unwrap_or_default()).into_owned())
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use wharf_proto::cri;

    use super::*;

    #[test]
    fn every_message_has_it_in_one_place() {
        let id = || "id-1".to_owned();
        let messages = [
            cri::StopPodSandboxRequest { pod_sandbox_id: id() }.encode_to_vec(),
            cri::RemovePodSandboxRequest { pod_sandbox_id: id() }.encode_to_vec(),
            cri::StartContainerRequest { container_id: id() }.encode_to_vec(),
            cri::StopContainerRequest { container_id: id(), timeout: 30 }.encode_to_vec(),
            cri::RemoveContainerRequest { container_id: id() }.encode_to_vec(),
            cri::UpdateContainerResourcesRequest { container_id: id(), ..Default::default() }
                .encode_to_vec(),
            cri::CreateContainerRequest {
                pod_sandbox_id: id(),
                config: Some(cri::ContainerConfig::default()),
                sandbox_config: None,
            }
            .encode_to_vec(),
            cri::RunPodSandboxResponse { pod_sandbox_id: id() }.encode_to_vec(),
            cri::CreateContainerResponse { container_id: id() }.encode_to_vec(),
        ];
        for message in messages {
            assert_eq!(of(&message.into()), Ok(id()));
        }
        assert_eq!(of(&Bytes::new()), Ok(String::new()));
        assert!(of(&Bytes::from_static(&[0x0a, 9])).is_err());
        let many = [&[0x12, 0].repeat(1 << 20)[..], b"\x0a\x04id-1"].concat();
        assert_eq!(of(&many.into()), Ok(id()), "it is found among any number of others");
    }
}
