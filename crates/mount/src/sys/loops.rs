//! ioctls of loop devices and of `/dev/loop-control`.

use std::{
    ffi::c_void,
    os::fd::{AsFd, AsRawFd},
};

use rustix::{
    io,
    ioctl::{Getter, IntegerSetter, Ioctl, IoctlOutput, NoArg, Opcode, Setter, ioctl},
};

const LOOP_CLR_FD: Opcode = 0x4c01;
const LOOP_SET_STATUS64: Opcode = 0x4c04;
const LOOP_GET_STATUS64: Opcode = 0x4c05;
const LOOP_SET_CAPACITY: Opcode = 0x4c07;
const LOOP_CONFIGURE: Opcode = 0x4c0a;
const LOOP_CTL_REMOVE: Opcode = 0x4c81;
const LOOP_CTL_GET_FREE: Opcode = 0x4c82;

/// The kernel refuses writes.
pub(crate) const READ_ONLY: u32 = 1;
/// The kernel detaches the device when its last user closes it.
pub(crate) const AUTOCLEAR: u32 = 4;
/// The device bypasses the page cache of the backing file.
pub(crate) const DIRECT_IO: u32 = 16;

/// `struct loop_info64`.
#[derive(Clone)]
#[repr(C)]
pub(crate) struct Info {
    /// Device number of the backing file's filesystem, as in `st_dev`.
    pub(crate) device: u64,
    /// Inode of the backing file.
    pub(crate) inode: u64,
    rdevice: u64,
    pub(crate) offset: u64,
    pub(crate) size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    pub(crate) flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct Config {
    file: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

/// Returns the number of a free device, which the kernel creates if needed. Another program may
/// take it first.
pub(crate) fn free(control: &impl AsFd) -> io::Result<u32> {
    // SAFETY: LOOP_CTL_GET_FREE takes no argument.
    unsafe { ioctl(control, GetFree) }
}

/// Removes a device that has nothing attached and no users.
pub(crate) fn remove(control: &impl AsFd, number: u32) -> io::Result<()> {
    // SAFETY: LOOP_CTL_REMOVE takes the number itself as its argument.
    let request = unsafe { IntegerSetter::<LOOP_CTL_REMOVE>::new_usize(number as usize) };
    // SAFETY: as above.
    unsafe { ioctl(control, request) }
}

/// Attaches `image` in one step; `block_size` 0 leaves the choice to the kernel.
pub(crate) fn configure(
    device: &impl AsFd,
    image: &impl AsFd,
    flags: u32,
    block_size: u32,
) -> io::Result<()> {
    let info = Info {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
    let file = image.as_fd().as_raw_fd().cast_unsigned();
    let config = Config { file, block_size, info, reserved: [0; 8] };
    // SAFETY: the structure has the layout that LOOP_CONFIGURE reads.
    let request = unsafe { Setter::<LOOP_CONFIGURE, Config>::new(config) };
    // SAFETY: as above; the kernel takes its own reference to the file.
    unsafe { ioctl(device, request) }
}

/// Returns the device's status; ENXIO if nothing is attached.
pub(crate) fn status(device: &impl AsFd) -> io::Result<Info> {
    // SAFETY: the structure has the layout that LOOP_GET_STATUS64 fills, and any bytes are a valid
    // value of it.
    let request = unsafe { Getter::<LOOP_GET_STATUS64, Info>::new() };
    // SAFETY: as above.
    unsafe { ioctl(device, request) }
}

/// Sets the fields of `info` that may change on a device in use. The kernel clears AUTOCLEAR if
/// `info` lacks it.
pub(crate) fn set_status(device: &impl AsFd, info: Info) -> io::Result<()> {
    // SAFETY: the structure has the layout that LOOP_SET_STATUS64 reads.
    let request = unsafe { Setter::<LOOP_SET_STATUS64, Info>::new(info) };
    // SAFETY: as above.
    unsafe { ioctl(device, request) }
}

/// Detaches the image, now or when the last user closes the device.
pub(crate) fn clear(device: &impl AsFd) -> io::Result<()> {
    // SAFETY: LOOP_CLR_FD takes no argument.
    let request = unsafe { NoArg::<LOOP_CLR_FD>::new() };
    // SAFETY: as above.
    unsafe { ioctl(device, request) }
}

/// Adjusts the device's size to the present size of its backing file.
pub(crate) fn set_capacity(device: &impl AsFd) -> io::Result<()> {
    // SAFETY: LOOP_SET_CAPACITY takes no argument.
    let request = unsafe { NoArg::<LOOP_SET_CAPACITY>::new() };
    // SAFETY: as above.
    unsafe { ioctl(device, request) }
}

/// An ioctl that returns its result as the return value.
struct GetFree;

// SAFETY: no memory is passed; the output is the return value, which is a device number if it is
// not an error.
unsafe impl Ioctl for GetFree {
    type Output = u32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(number: IoctlOutput, _: *mut c_void) -> io::Result<u32> {
        Ok(number.cast_unsigned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_size() {
        assert_eq!((size_of::<Info>(), size_of::<Config>()), (232, 304));
    }
}
