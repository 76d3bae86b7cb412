//! Free devices that refuse discards.
//!
//! A device that was once told to refuse discards does so for whatever is attached to it next. Nothing brings them back but
//! taking the device away; the kernel makes a new one when it is asked for a free one.

use std::fs::OpenOptions;

use rustix::io::Errno;

use super::node;
use crate::{Result, sys};

/// The devices that refuse discards and that nothing is attached to.
pub fn spoilt() -> Result<Vec<u32>> {
    let mut found = node::all()?;
    found.retain(|number| is_spoilt(*number));
    Ok(found)
}

/// Takes a device away if nothing is attached to it and it refuses discards; true unless it may still have to be.
pub fn take_away_spoilt(number: u32) -> bool {
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
            // Somebody has it open; `attach` looks at what it gets.
            tracing::debug!(number, %error, "failed to take a loop device away");
            false
        }
    }
}

fn is_spoilt(number: u32) -> bool {
    node::refuses_discards(number) && node::backing(number).is_none()
}
