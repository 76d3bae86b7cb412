//! The binary as its users run it: as processes.

#![allow(clippy::unwrap_used, missing_docs)]

mod attacher_flags;
#[path = "../charts/lines.rs"]
mod chart_lines;
mod charts;
mod commands;
mod cri_recovery;
mod csi;
mod csi_driver;
mod csi_peer;
mod demo;
mod docs;
mod hooks;
mod kills;
mod kubelet;
mod provisioner_flags;
mod proxy;
mod proxy_attacks;
mod proxy_config_map;
mod proxy_containerd;
mod proxy_differential;
mod proxy_events;
mod proxy_explain;
mod proxy_generations;
mod proxy_hooks;
mod proxy_kill;
mod proxy_kubelet;
mod proxy_personality;
mod proxy_required;
mod proxy_rules;
mod proxy_service;
mod proxy_take_over;
mod proxy_tap;
mod proxy_upgrade;
mod proxy_upgrade_containerd;
mod resizer;
mod sidecars;
mod snapshot_flags;
mod status;
mod support;
mod upstream_flags;
