//! Delayed answers.

use tokio::{sync::watch, time::timeout};
use wharf_csi_sdk::prelude::Failure;

use crate::api::PATIENCE;

/// Calls that are not answered although their work is done.
#[derive(Default)]
pub(super) struct Hold(watch::Sender<State>);

#[derive(Default)]
struct State {
    rpc: Option<&'static str>,
    /// Held is only what comes in here, and when that has begun others are refused.
    door: Option<String>,
    held: bool,
    refused: bool,
}

impl Hold {
    pub(super) fn begin(&self, rpc: &'static str, door: Option<&str>) {
        let door = door.map(str::to_owned);
        self.0.send_replace(State { rpc: Some(rpc), door, ..State::default() });
    }

    pub(super) fn end(&self) {
        self.0.send_replace(State::default());
    }

    pub(super) async fn held(&self) {
        self.wait(|state| state.held).await;
    }

    pub(super) async fn refused(&self) {
        self.wait(|state| state.refused).await;
    }

    /// Before the work of a call.
    pub(super) fn admit(&self, rpc: &'static str, door: &str) -> Result<(), Failure> {
        let refuses = |state: &State| state.covers(rpc, door) && state.door.is_some() && state.held;
        let refused = self.0.send_if_modified(|state| {
            let refuses = refuses(state);
            state.refused |= refuses;
            refuses
        });
        match refused {
            true => Err(Failure::Unavailable(format!("{door} is closed for {rpc}"))),
            false => Ok(()),
        }
    }

    /// After the work of a call.
    pub(super) async fn pass(&self, rpc: &'static str, door: &str) {
        let mut states = self.0.subscribe();
        if states.borrow().covers(rpc, door) {
            self.0.send_modify(|state| state.held = true);
            // The sender is in the ledger, which outlives its calls.
            let _ = states.wait_for(|state| state.rpc != Some(rpc)).await;
        }
    }

    async fn wait(&self, wanted: impl Fn(&State) -> bool) {
        let mut states = self.0.subscribe();
        timeout(PATIENCE, states.wait_for(wanted)).await.unwrap().unwrap();
    }
}

impl State {
    fn covers(&self, rpc: &str, door: &str) -> bool {
        self.rpc == Some(rpc) && self.door.as_deref().is_none_or(|own| own == door)
    }
}
