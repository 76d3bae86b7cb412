//! Free loop devices that refuse discards.
//!
//! Once a device was told to refuse discards, it refuses them for every image attached later. Only
//! removing the device undoes that; the kernel creates a new one on demand.

use std::fs::OpenOptions;

use rustix::io::Errno;

use super::node;
use crate::{Result, sys};

/// Returns the devices that refuse discards and have nothing attached.
pub fn refusing_discards() -> Result<Vec<u32>> {
    let mut found = node::all()?;
    found.retain(|number| is_free_and_refusing(*number));
    Ok(found)
}

/// Removes a device if it refuses discards and has nothing attached. Returns false if it must be
/// tried again.
pub fn remove_if_refusing_discards(number: u32) -> bool {
    if !node::refuses_discards(number) {
        return true;
    }
    if node::backing(number).is_some() {
        return false;
    }
    let control = OpenOptions::new().read(true).write(true).open(super::CONTROL);
    let control = control.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
    match control.and_then(|control| sys::loops::remove(&control, number)) {
        Ok(()) => true,
        Err(error) => {
            // Another program has it open. `attach` checks the devices it gets.
            tracing::debug!(number, %error, "failed to remove loop device");
            false
        }
    }
}

fn is_free_and_refusing(number: u32) -> bool {
    node::refuses_discards(number) && node::backing(number).is_none()
}
