//! Registration of node plugins (`pluginregistration`).

tonic::include_proto!("pluginregistration");

/// [`PluginInfo::type`](PluginInfo) of a CSI driver.
pub const CSI_PLUGIN: &str = "CSIPlugin";
/// [`PluginInfo::type`](PluginInfo) of a device plugin.
pub const DEVICE_PLUGIN: &str = "DevicePlugin";
/// [`PluginInfo::type`](PluginInfo) of a DRA driver.
pub const DRA_PLUGIN: &str = "DRAPlugin";
