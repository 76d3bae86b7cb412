//! Names of replicas in Leases. No two live processes share one.
//!
//! A replica that finds its own name in a Lease takes the Lease without waiting, so that a
//! restarted container works at once. That is safe only if the process that wrote the name is dead.
//! The host's name does not tell: pods of the host's network have the name of their node, and a
//! Deployment may give all of its pods one host name.

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

/// The name of a replica in its Lease. Clones are the same replica.
#[derive(Clone)]
pub struct ReplicaIdentity {
    text: String,
    /// No other process has the name while this socket is open; the kernel closes it when the
    /// process ends.
    _claimed: Option<Arc<UnixDatagram>>,
}

impl ReplicaIdentity {
    /// The name of this process for one Lease: `<host>_<16 hex digits>`.
    ///
    /// A process that is restarted in the same network namespace gets the same name once its
    /// predecessor is dead. The name is a hash of the machine's boot, the network namespace, the
    /// host and the Lease. A process has it only while it holds the abstract socket of this name,
    /// which a network namespace has once. If the socket is taken, by another replica on the host,
    /// the name is random, and the Lease of an earlier process has to expire first.
    pub fn of_process(host: &str, namespace: &str, lease: &str) -> Self {
        let (hash, claimed) = match claim(host, namespace, lease) {
            Ok((hash, socket)) => (hash, Some(Arc::new(socket))),
            Err(error) => {
                tracing::debug!(%error, lease, "using a random identity: another process may have the host's");
                (RandomState::new().hash_one(host), None)
            }
        };
        Self { text: format!("{host}_{hash:016x}"), _claimed: claimed }
    }

    /// A name that the caller knows to be unique among live processes.
    pub fn unique(name: &str) -> Self {
        Self { text: name.to_owned(), _claimed: None }
    }

    /// The text in the Lease.
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

/// The parts of a name, and the socket that claims it. The socket's name is only the hash: builds
/// that hash differently have other names, too.
fn claim(host: &str, namespace: &str, lease: &str) -> io::Result<(u64, UnixDatagram)> {
    let boot = read_to_string("/proc/sys/kernel/random/boot_id")?;
    // An inode number is reused only when no process is left in the network namespace that had it.
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
