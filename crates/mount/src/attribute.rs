//! Extended attributes of files.

use std::fs::File;

use rustix::{
    fs::{XattrFlags, fgetxattr, fsetxattr},
    io::Errno,
};

use crate::{Error, Result, error::path_of};

/// Sets the attribute `name`, such as `user.wharf.volume`, creating or replacing it.
///
/// The attribute is on disk once the file is synced. Filesystems limit it to about 4 KB, at most 64
/// KB.
pub fn set(file: &File, name: &str, value: &[u8]) -> Result<()> {
    fsetxattr(file, name, value, XattrFlags::empty())
        .map_err(|errno| refused("set an attribute of", file, errno))
}

/// Returns the attribute's value, or `None` if the file does not have it.
pub fn get(file: &File, name: &str) -> Result<Option<Vec<u8>>> {
    // The largest value that Linux allows, so that one call suffices.
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
