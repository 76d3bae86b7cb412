use clap::Args;
use serde_json::{Value, json};
use wharf_proto::csi::{
    ControllerGetCapabilitiesRequest, GetPluginCapabilitiesRequest, GetPluginInfoRequest,
    NodeGetCapabilitiesRequest, NodeGetInfoRequest, ProbeRequest, controller_service_capability,
    node_service_capability, plugin_capability,
};

use super::{
    document,
    failure::Failure,
    need::{ControllerRpc, GroupRpc, NodeRpc, Service},
    report::Report,
    session::Session,
};

/// Shows the driver's name and version, its readiness and its node (GetPluginInfo, Probe,
/// NodeGetInfo)
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi info --endpoint unix:///csi/csi.sock")]
pub(crate) struct Info {}

impl Info {
    pub(crate) async fn run(self, session: &Session) -> Result<Report, Failure> {
        let driver = &session.driver;
        let info = session
            .call("GetPluginInfo", GetPluginInfoRequest {}, async |request| {
                driver.identity().get_plugin_info(request).await
            })
            .await?;
        let probe = session
            .call("Probe", ProbeRequest {}, async |request| driver.identity().probe(request).await)
            .await;
        let node = session
            .call("NodeGetInfo", NodeGetInfoRequest {}, async |request| {
                driver.node().node_get_info(request).await
            })
            .await;
        let mut document = document::of("GetPluginInfoResponse", &info);
        let mut notes = Vec::new();
        let ready = match probe {
            // An absent `ready` means ready.
            Ok(probe) => json!(probe.ready.unwrap_or(true)),
            Err(failure) => {
                notes.push(failure.to_string());
                Value::Null
            }
        };
        document["ready"] = ready;
        document["node"] = match node {
            Ok(node) => document::of("NodeGetInfoResponse", &node),
            // A driver with a controller service alone has no node service.
            Err(Failure::Refused { code: tonic::Code::Unimplemented, .. }) => Value::Null,
            Err(failure) => {
                notes.push(failure.to_string());
                Value::Null
            }
        };
        let complete = notes.is_empty();
        let report = notes.into_iter().fold(Report::document(document), Report::note);
        Ok(if complete { report } else { report.incomplete() })
    }
}

/// Shows all capabilities that the driver advertises (GetPluginCapabilities,
/// ControllerGetCapabilities, GroupControllerGetCapabilities, NodeGetCapabilities)
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi caps -o json")]
pub(crate) struct Caps {}

impl Caps {
    pub(crate) async fn run(self, session: &Session) -> Result<Report, Failure> {
        let driver = &session.driver;
        let plugin = session
            .call("GetPluginCapabilities", GetPluginCapabilitiesRequest {}, async |request| {
                driver.identity().get_plugin_capabilities(request).await
            })
            .await?;
        let (mut services, mut expansion) = (Vec::new(), Vec::new());
        for capability in plugin.capabilities {
            match capability.r#type {
                Some(plugin_capability::Type::Service(service)) => services.push(service.r#type),
                Some(plugin_capability::Type::VolumeExpansion(way)) => expansion.push(way.r#type),
                None => {}
            }
        }
        let mut sets = vec![
            ("plugin", Ok(named(&services, |it| Service::try_from(it).map(|it| it.as_str_name())))),
            (
                "volume_expansion",
                Ok(named(&expansion, |it| {
                    plugin_capability::volume_expansion::Type::try_from(it)
                        .map(|it| it.as_str_name())
                })),
            ),
        ];
        if services.contains(&Service::ControllerService.into()) || session.force {
            sets.push(("controller", controller(session).await));
        }
        if services.contains(&Service::GroupControllerService.into()) || session.force {
            let found = session.group_capabilities().await;
            let found = found
                .map(|found| named(&found, |it| GroupRpc::try_from(it).map(|it| it.as_str_name())));
            sets.push(("group_controller", found));
        }
        sets.push(("node", node(session).await));
        Ok(shown(sets))
    }
}

async fn controller(session: &Session) -> Result<Value, Failure> {
    let answer = session
        .call("ControllerGetCapabilities", ControllerGetCapabilitiesRequest {}, async |request| {
            session.driver.controller().controller_get_capabilities(request).await
        })
        .await?;
    let types = answer.capabilities.into_iter().filter_map(|capability| capability.r#type);
    let types: Vec<i32> =
        types.map(|controller_service_capability::Type::Rpc(rpc)| rpc.r#type).collect();
    Ok(named(&types, |it| ControllerRpc::try_from(it).map(|it| it.as_str_name())))
}

async fn node(session: &Session) -> Result<Value, Failure> {
    let answer = session
        .call("NodeGetCapabilities", NodeGetCapabilitiesRequest {}, async |request| {
            session.driver.node().node_get_capabilities(request).await
        })
        .await?;
    let types = answer.capabilities.into_iter().filter_map(|capability| capability.r#type);
    let types: Vec<i32> = types.map(|node_service_capability::Type::Rpc(rpc)| rpc.r#type).collect();
    Ok(named(&types, |it| NodeRpc::try_from(it).map(|it| it.as_str_name())))
}

/// The name of a capability, or its number if this build does not know it.
fn named<E>(numbers: &[i32], name: impl Fn(i32) -> Result<&'static str, E>) -> Value {
    numbers.iter().map(|number| name(*number).map_or_else(|_| json!(number), Value::from)).collect()
}

/// A set of capabilities, or its error: one failure does not hide the other sets.
fn shown(sets: Vec<(&'static str, Result<Value, Failure>)>) -> Report {
    let (mut document, mut notes) = (json!({}), Vec::new());
    let mut complete = true;
    for (name, found) in sets {
        document[name] = found.unwrap_or_else(|failure| {
            // A missing service has no capabilities.
            let absent =
                matches!(failure, Failure::Refused { code: tonic::Code::Unimplemented, .. });
            complete &= absent;
            notes.push(failure.to_string());
            Value::Null
        });
    }
    let report = notes.into_iter().fold(Report::document(document), Report::note);
    if complete { report } else { report.incomplete() }
}
