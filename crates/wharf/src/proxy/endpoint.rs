use std::{path::PathBuf, str::FromStr};

/// A unix socket, as a path or as the kubelet writes it: `unix:///run/containerd/containerd.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint(PathBuf);

impl Endpoint {
    pub(super) fn into_path(self) -> PathBuf {
        self.0
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Endpoint, String> {
        let path = text.strip_prefix("unix://").unwrap_or(text);
        if path.contains("://") {
            return Err("expected a unix socket: a path, or unix:// and a path".to_owned());
        }
        if !path.starts_with('/') {
            return Err("expected the absolute path of a socket".to_owned());
        }
        Ok(Endpoint(path.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_or_without_scheme() {
        for text in ["/run/c.sock", "unix:///run/c.sock"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().into_path(), PathBuf::from("/run/c.sock"));
        }
        for text in ["", "c.sock", "unix://c.sock", "tcp://127.0.0.1:1", "unix:///a://b"] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}
