use std::path::{Path, PathBuf};

/// An endpoint that is not the path of a unix socket.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum EndpointError {
    /// The endpoint is empty.
    #[error("endpoint is empty: expected the path of a unix socket, or unix:// and a path")]
    Empty,
    /// The endpoint names another transport.
    #[error("endpoint {0:?} is not a unix socket: expected a path, or unix:// and a path")]
    NotUnix(String),
    /// The path is relative, and so depends on the working directory.
    #[error("endpoint {0:?} is relative: expected an absolute path")]
    Relative(String),
    /// The path contains a NUL byte, which no file name can.
    #[error("endpoint {0:?} has a NUL in it, which no path has")]
    Nul(String),
}

/// The socket path of an endpoint in any of its spellings: a path, `unix:///path` or `unix:/path`.
pub fn socket_of(endpoint: &str) -> Result<PathBuf, EndpointError> {
    let path = match endpoint.split_once(':') {
        Some(("unix", rest)) => rest.strip_prefix("//").unwrap_or(rest),
        Some((scheme, rest)) if rest.starts_with("//") && !scheme.contains('/') => {
            return Err(EndpointError::NotUnix(endpoint.to_owned()));
        }
        _ => endpoint,
    };
    if path.is_empty() {
        return Err(EndpointError::Empty);
    }
    if path.contains('\0') {
        return Err(EndpointError::Nul(endpoint.to_owned()));
    }
    if !Path::new(path).is_absolute() {
        return Err(EndpointError::Relative(endpoint.to_owned()));
    }
    Ok(PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_people_write() {
        for good in ["/run/csi/socket", "unix:///run/csi/socket", "unix:/run/csi/socket"] {
            assert_eq!(socket_of(good), Ok(PathBuf::from("/run/csi/socket")), "{good}");
        }
        assert_eq!(socket_of("/a:b/c.sock"), Ok(PathBuf::from("/a:b/c.sock")));
        assert_eq!(socket_of(""), Err(EndpointError::Empty));
        assert_eq!(socket_of("unix://"), Err(EndpointError::Empty));
        assert_eq!(socket_of("csi.sock"), Err(EndpointError::Relative("csi.sock".into())));
        assert_eq!(socket_of("/a\0"), Err(EndpointError::Nul("/a\0".into())));
        assert_eq!(
            socket_of("tcp://1.2.3.4:5"),
            Err(EndpointError::NotUnix("tcp://1.2.3.4:5".into()))
        );
    }
}
