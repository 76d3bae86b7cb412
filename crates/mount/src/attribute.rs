//! Extended attributes: small facts that a file carries with it.

use std::fs::File;

use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use rustix::io::Errno;

use crate::error::path_of;
use crate::{Error, Result};

/// Sets the attribute `name`, such as `user.wharf.volume`, to `value`, new or not.
///
/// It is on disk once the file is synced. Most filesystems have room for about 4 KB, or for 64 KB at best.
pub fn set(file: &File, name: &str, value: &[u8]) -> Result<()> {
    fsetxattr(file, name, value, XattrFlags::empty())
        .map_err(|errno| refused("set an attribute of", file, errno))
}

/// The attribute's value, if the file has one.
pub fn get(file: &File, name: &str) -> Result<Option<Vec<u8>>> {
    // The largest value that Linux allows: one call always does.
    let mut buffer = vec![0; 64 << 10];
    match fgetxattr(file, name, &mut buffer[..]) {
        Ok(length) => {
            buffer.truncate(length);
            Ok(Some(buffer))
        }
        Err(Errno::NODATA) => Ok(None),
        Err(errno) => Err(refused("read an attribute of", file, errno)),
    }
}

fn refused(operation: &'static str, file: &File, errno: Errno) -> Error {
    match errno {
        Errno::OPNOTSUPP => Error::Unsupported {
            operation: "extended attributes",
            path: path_of(file),
            source: errno.into(),
        },
        errno => Error::file(operation, file)(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("image")).unwrap();
        assert_eq!(get(&file, "user.wharf.test").unwrap(), None);
        for value in [b"one".as_slice(), b"", &[0xff; 1000]] {
            set(&file, "user.wharf.test", value).unwrap();
            assert_eq!(get(&file, "user.wharf.test").unwrap().as_deref(), Some(value));
        }
        let error = set(&file, "user.wharf.test", &[0; 1 << 20]).unwrap_err();
        assert!(error.errno().is_some(), "{error:?}");
        assert!(error.to_string().contains("image"), "{error}");
    }
}
