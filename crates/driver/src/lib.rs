//! A CSI driver for local storage.
//!
//! A volume is an image on a pool, a loop device on the image, and a filesystem or the device
//! itself for a pod. Every promise is recorded first ([`store`]), every operation can be repeated
//! ([`pool`], [`node`]), and mounts and loop devices are read from the kernel, with records of them
//! used only as hints. So a crash costs nothing but time.
//!
//! - [`record`]: the records of volumes, snapshots, groups and nodes.
//! - [`store`]: the records on disk, in redb on the pool, with group commit.
//! - [`backend`]: how images are created and copied.
//! - `devices`: attaches and detaches the loop devices of images.
//! - [`pool`]: volumes, snapshots and groups, from promise to deletion.
//! - [`pools`]: the pools of a driver, each with its identity ([`state_dir`]) and settings
//!   ([`config`]).
//! - [`node`]: stage, publish, limits, health.
//! - [`service`]: implements the SDK's traits.
//! - [`unsharing`]: unshares copies in the background.
//! - [`inspect`], [`admin`], [`metrics`]: for operators.
//! - [`private`]: file modes.
//! - [`points`]: steps after which tests kill the driver.

pub mod admin;
pub mod backend;
pub mod config;
mod devices;
pub mod error;
mod files;
pub mod inspect;
pub mod limits;
pub mod metrics;
pub mod node;
pub mod points;
pub mod pool;
pub mod pool_image;
pub mod pools;
pub mod private;
pub mod record;
pub mod service;
pub mod state_dir;
pub mod store;
pub mod unsharing;

use error::Error;

/// Bytes from the kernel's random number generator.
fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Error::file("read", "/dev/urandom")(error.into()))?;
    Ok(bytes)
}
