//! The address of a driver's socket.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

/// Environment variable that names the socket.
const VARIABLE: &str = "CSI_ENDPOINT";

/// Path of a unix socket, written as `unix:///x.sock`, `unix:/x.sock` or the bare path. It is
/// absolute and ends in `.sock`.
///
/// ```
/// use wharf_csi_sdk::Endpoint;
///
/// let endpoint: Endpoint = "unix:///csi/csi.sock".parse()?;
/// assert_eq!(endpoint.path().to_str(), Some("/csi/csi.sock"));
/// assert!("tcp://127.0.0.1:10000".parse::<Endpoint>().is_err());
/// # Ok::<(), wharf_csi_sdk::EndpointError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(PathBuf);

impl Endpoint {
    /// Reads the endpoint from the variable `CSI_ENDPOINT`.
    pub fn from_env() -> Result<Self, EndpointError> {
        std::env::var(VARIABLE).map_err(|_| EndpointError::NotSet)?.parse()
    }

    /// Path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let path = match text.split_once(':') {
            Some(("unix", rest)) => rest.strip_prefix("//").unwrap_or(rest),
            _ => text,
        };
        let path = PathBuf::from(path);
        if !path.is_absolute() {
            return Err(EndpointError::NotAbsolute(text.to_owned()));
        }
        if path.extension().is_none_or(|extension| extension != "sock") {
            return Err(EndpointError::NotSock(text.to_owned()));
        }
        Ok(Self(path))
    }
}

/// Why a text is not an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The variable is not set, or is not UTF-8.
    #[error("{VARIABLE} is not set: expected the driver's socket, such as unix:///csi/csi.sock")]
    NotSet,
    /// The text is another kind of address, or a relative path.
    #[error("CSI endpoint {0:?}: expected an absolute path, or unix:// and an absolute path")]
    NotAbsolute(String),
    /// The path does not end in `.sock`, as CSI requires.
    #[error("CSI endpoint {0:?}: expected a path that ends in .sock")]
    NotSock(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_people_write() {
        for good in ["unix:///csi/a.sock", "unix:/csi/a.sock", "/csi/a.sock"] {
            assert_eq!(good.parse(), Ok(Endpoint("/csi/a.sock".into())), "{good}");
        }
        for bad in ["", "a.sock", "unix://a.sock", "tcp://1.2.3.4:5", "unix:"] {
            assert_eq!(bad.parse::<Endpoint>(), Err(EndpointError::NotAbsolute(bad.into())));
        }
        for bad in ["/csi/socket", "unix:///csi/", "/.sock"] {
            assert_eq!(bad.parse::<Endpoint>(), Err(EndpointError::NotSock(bad.into())));
        }
    }
}
