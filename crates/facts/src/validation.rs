//! Checks names by the rules of Kubernetes.

/// Why a string is not the name of a CSI driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverNameError {
    /// The string is empty.
    #[error("CSI driver name is empty: expected a domain-like name such as csi.example.com")]
    Empty,
    /// More than [`MAX_DRIVER_NAME`] bytes.
    #[error("CSI driver name {start:?}... has {length} bytes: expected at most {MAX_DRIVER_NAME}")]
    TooLong {
        /// Its first [`MAX_DRIVER_NAME`] bytes.
        start: String,
        /// Its length in bytes.
        length: usize,
    },
    /// Not domain-like.
    #[error(
        "CSI driver name {0:?} is not domain-like: expected letters, digits, '-' and '.', \
         each part between dots beginning and ending with a letter or digit"
    )]
    NotDomainLike(String),
}

/// Longest name of a CSI driver, in bytes.
pub const MAX_DRIVER_NAME: usize = 63;

/// Longest name before the slash of a qualified name, in bytes.
const MAX_SUBDOMAIN: usize = 253;
/// Longest name after the slash of a qualified name, in bytes.
const MAX_NAME: usize = 63;

/// Checks the name of a CSI driver, by the rule for CSIDriver and CSINode objects.
pub fn check_driver_name(name: &str) -> Result<(), DriverNameError> {
    if name.is_empty() {
        return Err(DriverNameError::Empty);
    }
    if name.len() > MAX_DRIVER_NAME {
        let start = name[..name.floor_char_boundary(MAX_DRIVER_NAME)].to_owned();
        return Err(DriverNameError::TooLong { start, length: name.len() });
    }
    // Upper case is allowed here, unlike in object names.
    if !is_subdomain(&name.to_ascii_lowercase()) {
        return Err(DriverNameError::NotDomainLike(name.to_owned()));
    }
    Ok(())
}

/// Whether `name` can name the resource of a device plugin, such as `example.com/gpu`.
#[must_use]
pub fn is_extended_resource_name(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    // A quota prefixes the name with `requests.`, so the prefix counts and must not be present.
    !native && !name.starts_with("requests.") && is_qualified_name(&format!("requests.{name}"))
}

/// Whether `name` is a subdomain and a name, with a slash between them.
fn is_qualified_name(name: &str) -> bool {
    name.split_once('/').is_some_and(|(prefix, name)| is_subdomain(prefix) && is_plain_name(name))
}

/// Whether `name` is a qualified name without its prefix.
fn is_plain_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    name.len() <= MAX_NAME && is_enclosed(name, inner)
}

/// Whether `key` can be the key of a label, such as `topology.kubernetes.io/zone`.
#[must_use]
pub fn is_label_key(key: &str) -> bool {
    is_plain_name(key) || is_qualified_name(key)
}

/// Whether `value` can be the value of a label.
#[must_use]
pub fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_plain_name(value)
}

/// Whether `name` is a lower-case RFC 1123 label, the rule for namespaces.
#[must_use]
pub fn is_label(name: &str) -> bool {
    name.len() <= MAX_NAME && !name.contains('.') && is_subdomain(name)
}

/// Whether `name` is a lower-case RFC 1123 subdomain, the rule for most objects.
#[must_use]
pub fn is_subdomain(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = |label: &str| is_enclosed(label, inner);
    name.len() <= MAX_SUBDOMAIN && name.split('.').all(is_label)
}

/// Whether all bytes of `name` pass `inner`, and it begins and ends with a letter or digit.
fn is_enclosed(name: &str, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = name.as_bytes();
    let ends = bytes.first().zip(bytes.last());
    ends.is_some_and(|(first, last)| first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric())
        && bytes.iter().copied().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_names_are_domain_like() {
        for name in ["csi.example.com", "a", "CSI.Example.com", "a-b.c", &"x".repeat(63)] {
            assert_eq!(check_driver_name(name), Ok(()), "{name}");
        }
        assert_eq!(check_driver_name(""), Err(DriverNameError::Empty));
        assert_eq!(
            check_driver_name(&"x".repeat(64)),
            Err(DriverNameError::TooLong { start: "x".repeat(63), length: 64 })
        );
        for name in [".a", "a.", "a..b", "-a", "a-", "a-.b", "a_b", "a/b", "é", "a b", "a\n"] {
            assert_eq!(
                check_driver_name(name),
                Err(DriverNameError::NotDomainLike(name.to_owned())),
                "{name}"
            );
        }
    }

    #[test]
    fn labels_have_plain_names() {
        for key in ["zone", "topology.kubernetes.io/zone", "A_b.c", &"x".repeat(63)] {
            assert!(is_label_key(key), "{key}");
        }
        for key in ["", "a b", "-a", "a/", "/a", "A.b/c", "a/b/c", &"x".repeat(64)] {
            assert!(!is_label_key(key), "{key}");
        }
        assert!(is_label_value("") && is_label_value("eu-1.A_b"));
        assert!(!is_label_value("a/b") && !is_label_value("a\n"));
    }

    #[test]
    fn namespaces_have_no_dots() {
        assert!(is_label("a-1") && is_subdomain("a.b"));
        for name in ["", "a.b", "A", "-a", "a_b", &"x".repeat(64)] {
            assert!(!is_label(name), "{name}");
        }
    }

    #[test]
    fn extended_resources_are_qualified_and_not_native() {
        let longest = format!("a.b/{}", "x".repeat(63));
        for name in
            ["example.com/gpu", "pod.alpha.kubernetes.io.x/y", "vendor/Model_1.b", longest.as_str()]
        {
            assert!(is_extended_resource_name(name), "{name}");
        }
        let too_long = format!("a.b/{}", "x".repeat(64));
        // 253 bytes with `requests.` in front are the most.
        let prefix_too_long = format!("{}/x", "a".repeat(245));
        for name in [
            "",
            "cpu",
            "kubernetes.io/x",
            "a.kubernetes.io/x",
            "requests.example.com/gpu",
            "example.com/",
            "/gpu",
            "example.com/a/b",
            "Example.com/gpu",
            "example.com/-gpu",
            "example.com/g pu",
            too_long.as_str(),
            prefix_too_long.as_str(),
        ] {
            assert!(!is_extended_resource_name(name), "{name}");
        }
        assert!(is_extended_resource_name(&format!("{}/x", "a".repeat(244))));
    }
}
