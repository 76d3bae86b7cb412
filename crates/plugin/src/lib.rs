//! For plugin authors: a plugin that registers itself with the node.
//!
//! A node plugin makes a socket in the node's `plugins_registry` folder and serves `Registration`
//! on it. [`serve_registration`] returns that service, and a channel with the node's [`Verdict`]s.
//! Serve it together with the plugin's own service, or name another socket as the endpoint.
//! `examples/plugin` is a whole plugin in under a hundred lines.
//!
//! ```
//! use std::time::Duration;
//!
//! use tokio_util::sync::CancellationToken;
//! use wharf_plugin::serve_registration;
//! use wharf_proto::pluginregistration::{
//!     CSI_PLUGIN, InfoRequest, PluginInfo, registration_client::RegistrationClient,
//! };
//! use wharf_uds::{Channel, ChannelOptions, ListenOptions, Listener};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let (routes, _verdicts) = serve_registration(PluginInfo {
//!     r#type: CSI_PLUGIN.to_owned(),
//!     name: "csi.example.com".to_owned(),
//!     endpoint: "/var/lib/kubelet/plugins/csi.example.com/csi.sock".to_owned(),
//!     supported_versions: vec!["1.0.0".to_owned()],
//! });
//! // On a node: /var/lib/kubelet/plugins_registry
//! let folder = tempfile::tempdir()?;
//! let socket = folder.path().join("csi.example.com-reg.sock");
//! let listener = Listener::bind(&socket, &ListenOptions::default())?;
//! let stop = CancellationToken::new();
//! let serving = listener.serve(routes, Duration::from_secs(1), stop.clone());
//!
//! // The kubelet's part:
//! let registering = async {
//!     let channel = Channel::new(&socket, ChannelOptions::default());
//!     let info = RegistrationClient::new(channel).get_info(InfoRequest {}).await?.into_inner();
//!     assert_eq!(info.name, "csi.example.com");
//!     stop.cancel();
//!     Ok::<_, Box<dyn std::error::Error>>(())
//! };
//! let (served, registered) = tokio::join!(serving, registering);
//! served?;
//! registered
//! # })
//! # .map_err(|error: Box<dyn std::error::Error>| error)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! This crate has no Kubernetes client among its dependencies, so a plugin stays small.

mod service;

pub use service::{Verdict, serve_registration};
