//! Names of replicas in Leases, which no two live processes share.
//!
//! A replica that finds its own name in a Lease takes the Lease without a wait, so that a container that is restarted works again at
//! once. That is safe only if the process that wrote the name is dead. The host's name does not tell: pods of the host's network have
//! the name of their node, and a Deployment may give all of its pods one host name.

use std::{
    fmt,
    fs::{read_link, read_to_string},
    hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState},
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    sync::Arc,
};

/// The name of a replica in the Lease that it stands for. Clones are of the same replica.
#[derive(Clone)]
pub struct ReplicaIdentity {
    text: String,
    /// Nobody else has the name while this is open; the kernel closes it when the process ends, however it ends.
    _claimed: Option<Arc<UnixDatagram>>,
}

impl ReplicaIdentity {
    /// The name of this process for one Lease: `<host>_<16 hex digits>`.
    ///
    /// A process that is started again in the same network namespace gets the same name once its predecessor is dead. The
    /// name follows from the boot of the machine, the network namespace, the host and the Lease, and a process has it only
    /// while it has the abstract socket of this name, of which a network namespace has one. Where that is not to be had,
    /// as while another replica on the host has it, the name is random, and a Lease of an earlier process is waited for.
    pub fn of_process(host: &str, namespace: &str, lease: &str) -> Self {
        let (hash, claimed) = match claim(host, namespace, lease) {
            Ok((hash, socket)) => (hash, Some(Arc::new(socket))),
            Err(error) => {
                tracing::debug!(%error, lease, "another process may have the name of this host");
                (RandomState::new().hash_one(host), None)
            }
        };
        Self { text: format!("{host}_{hash:016x}"), _claimed: claimed }
    }

    /// A name that the caller knows to be unique among live processes.
    pub fn unique(name: &str) -> Self {
        Self { text: name.to_owned(), _claimed: None }
    }

    /// As it stands in a Lease.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for ReplicaIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(formatter)
    }
}

impl fmt::Display for ReplicaIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(formatter)
    }
}

/// What a name is made of, and the socket that goes with it. The socket's name is the hash and nothing else: builds that hash
/// in another way have other names, too.
fn claim(host: &str, namespace: &str, lease: &str) -> io::Result<(u64, UnixDatagram)> {
    let boot = read_to_string("/proc/sys/kernel/random/boot_id")?;
    // An inode number is used again only when nobody is left in the network namespace that had it.
    let network = read_link("/proc/self/ns/net")?;
    let mut hasher = DefaultHasher::new();
    (boot, network, host, namespace, lease).hash(&mut hasher);
    let hash = hasher.finish();
    let address = SocketAddr::from_abstract_name(format!("wharf-lease-{hash:016x}"))?;
    Ok((hash, UnixDatagram::bind_addr(&address)?))
}

#[cfg(test)]
mod tests {
    use super::ReplicaIdentity;

    #[test]
    fn a_name_is_used_again_only_when_its_process_has_gone() {
        let identity = || ReplicaIdentity::of_process("node-1", "storage", "identity-test");
        let first = identity();
        let again = first.clone();
        let second = identity();
        assert_ne!(first.as_str(), second.as_str());
        assert!(first.as_str().starts_with("node-1_") && second.as_str().starts_with("node-1_"));
        let name = first.as_str().to_owned();
        drop(first);
        assert_ne!(identity().as_str(), name, "a clone of it is still there");
        drop(again);
        assert_eq!(identity().as_str(), name);
        let other = ReplicaIdentity::of_process("node-1", "storage", "identity-test-2");
        assert_ne!(other.as_str(), name);
    }
}
