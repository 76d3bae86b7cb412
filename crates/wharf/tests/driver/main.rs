//! `wharf driver` as a process on its socket: with real loop devices, real filesystems and real
//! faults.

#![allow(clippy::unwrap_used, missing_docs, reason = "helpers of tests, too, fail by panicking")]

mod bad;
mod bench;
mod bytes;
mod client;
mod codes;
mod copies;
mod crash;
mod damage;
mod damaged_image;
mod devices;
mod fields;
mod foreign_files;
mod full;
mod full_btrfs;
mod full_restart;
mod group;
mod grow;
mod health;
mod held;
mod inline;
mod life;
mod limits;
mod mkfs;
mod offline;
mod pending;
mod pools;
mod private;
mod reboot;
mod repair;
mod rows;
mod running;
mod sanity;
mod soak;
mod stand_in;
mod state_file;
mod stray;
mod targets;
mod thick;
mod thin;
mod unshare;
mod unshare_crashes;
