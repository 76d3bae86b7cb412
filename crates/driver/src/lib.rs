//! The local-storage CSI driver.
//!
//! A volume is an image on a pool, a loop device on the image, and a filesystem or the bare device for a pod. Whatever is
//! promised is written down first ([`store`]), whatever is done can be done again ([`pool`], [`node`]), and whatever the
//! kernel knows (mounts, loop devices) is asked of it: what is remembered of it is a hint. So a crash costs time and nothing else.
//!
//! - [`record`]: what is written down.
//! - [`store`]: where and how; redb on the pool, with group commit.
//! - [`backend`]: how images are made and copied.
//! - `devices`: the loop devices of images, attached and detached in one place.
//! - [`pool`]: volumes, snapshots and groups, from promise to deletion.
//! - [`pools`]: the pools of a driver, each with its identity ([`state_dir`]) and settings ([`config`]).
//! - [`node`]: stage, publish, limits, health.
//! - [`service`]: all of it as CSI sees it, on the SDK's traits.
//! - [`unsharing`]: gives copies blocks of their own in the background.
//! - [`inspect`], [`admin`], [`metrics`]: for people.
//! - [`private`]: who may read what the driver makes.
//! - [`points`]: the steps after which a crash is tested.

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

/// Bytes from the kernel's random generator.
fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Error::file("read", "/dev/urandom")(error.into()))?;
    Ok(bytes)
}
