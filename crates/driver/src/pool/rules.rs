//! Admission rules of a pool: kinds of volumes, free space, and sharing of blocks.

use std::path::PathBuf;

use super::{Account, Kind, Pool, PoolSettings, disk, sharing::SharingPolicy};
use crate::{error::Error, store::State};

/// The rules of a pool at one moment, for changes of its state.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    root: PathBuf,
    settings: PoolSettings,
    policy: SharingPolicy,
}

/// The space that a request needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Bytes to promise.
    pub(super) promised: u64,
    /// Bytes of new or growing thin volumes; `None` if no thin volume is created or grown.
    pub(super) thin: Option<u64>,
}

impl Pool {
    pub(super) fn rules(&self) -> Rules {
        let root = self.layout.root().to_owned();
        Rules { root, settings: self.settings(), policy: self.sharing_policy() }
    }
}

impl Rules {
    /// The policy for sharing blocks.
    pub(super) fn sharing_policy(&self) -> SharingPolicy {
        self.policy
    }

    /// Refuses a new volume of a kind that the pool does not allow.
    pub(super) fn allow_kind(&self, thin: bool, ephemeral: bool) -> Result<(), Error> {
        let kinds = self.settings.kinds;
        if kinds.allow(Kind::of(thin)) {
            return Ok(());
        }
        let field = if ephemeral { "volume_context.thin" } else { "parameters.thin" };
        let expected = format!(
            "{}; the pool allows {kinds} volumes only: --kinds thick,thin allows both",
            !thin
        );
        Err(Error::invalid(field, expected))
    }

    /// Refuses requests that need more than the free space, all requests below the floor, and
    /// requests for thin volumes below the thin floor or above the thin ratio.
    pub(super) fn room_for(&self, state: &State, wanted: Wanted) -> Result<(), Error> {
        let account = Account::of(state, disk(&self.root)?, &self.settings);
        let available = account.disk.available;
        if account.below_floor() {
            return Err(Error::BelowFloor { available, floor: account.floor });
        }
        if let Some(more) = wanted.thin {
            // Writes to it could take space that thick volumes with shared blocks need.
            if let Some(copy) = self.policy.to_unshare(state).first() {
                return Err(Error::Pending(format!(
                    "{} still shares blocks with a thick volume, and gets space for its own{}: nothing thin is created or \
                     grown before; call again",
                    copy.id,
                    if copy.in_use { " once it is unstaged" } else { "" }
                )));
            }
            if account.below_thin_floor() {
                return Err(Error::BelowThinFloor { available, floor: account.thin_floor });
            }
            let (promised, limit) = (account.thin_promised, account.thin_limit);
            if more > 0 && promised.saturating_add(more) > limit {
                return Err(Error::ThinFull { promised, wanted: more, limit });
            }
        }
        let (free, wanted) = (account.capacity(), wanted.promised);
        if wanted > free { Err(Error::Full { free, wanted }) } else { Ok(()) }
    }
}
