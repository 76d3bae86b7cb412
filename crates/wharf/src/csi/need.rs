use std::fmt;

pub(crate) use wharf_proto::csi::{
    controller_service_capability::rpc::Type as ControllerRpc,
    group_controller_service_capability::rpc::Type as GroupRpc,
    node_service_capability::rpc::Type as NodeRpc, plugin_capability::service::Type as Service,
};

/// A capability that a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Plugin(Service),
    Controller(ControllerRpc),
    Group(GroupRpc),
    Node(NodeRpc),
}

impl Need {
    /// A command that answers the same question without the capability.
    pub(crate) fn instead(self) -> Option<&'static str> {
        match self {
            Self::Controller(ControllerRpc::GetVolume) => {
                Some("`wharf csi ls` may show the volume.")
            }
            Self::Controller(ControllerRpc::GetSnapshot) => {
                Some("`wharf csi snap ls --id ID` may show the snapshot.")
            }
            _ => None,
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (set, name) = match self {
            Self::Plugin(service) => ("plugin", service.as_str_name()),
            Self::Controller(rpc) => ("controller", rpc.as_str_name()),
            Self::Group(rpc) => ("group controller", rpc.as_str_name()),
            Self::Node(rpc) => ("node", rpc.as_str_name()),
        };
        write!(formatter, "the {set} capability {name}")
    }
}
