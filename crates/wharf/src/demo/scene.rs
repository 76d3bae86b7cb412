use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::sync::broadcast;
use wharf_registration::manager::{EventKind, PluginEvent};

use super::screen::Screen;

/// Limit for each step of the demo.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Shows an action and the events after it, in order.
pub(super) struct Scene<'a> {
    screen: &'a Screen,
    events: broadcast::Receiver<PluginEvent>,
    acted: Instant,
}

impl<'a> Scene<'a> {
    pub(super) fn new(screen: &'a Screen, events: broadcast::Receiver<PluginEvent>) -> Self {
        Self { screen, events, acted: Instant::now() }
    }

    /// Shows the next action, and starts the clock.
    pub(super) fn act(&mut self, text: &str) {
        self.screen.step(text);
        self.acted = Instant::now();
    }

    /// Shows a remark, without a restart of the clock.
    pub(super) fn say(&self, text: &str) {
        self.screen.step(text);
    }

    /// Shows an event, and the time since the action.
    pub(super) fn seen(&self, what: &str, detail: &str) {
        self.screen.seen(what, self.acted.elapsed(), detail);
    }

    /// Shows a finished step and its time, and restarts the clock.
    pub(super) fn done(&mut self, what: &str, detail: &str) {
        self.seen(what, detail);
        self.acted = Instant::now();
    }

    /// Waits for exactly these events of the demo's plugin, in this order.
    pub(super) async fn expect(&mut self, kinds: &[EventKind]) -> anyhow::Result<()> {
        for kind in kinds {
            let event = tokio::time::timeout(PATIENCE, self.events.recv())
                .await
                .with_context(|| format!("{kind:?} was not seen within {PATIENCE:?}"))??;
            if event.kind != *kind {
                bail!("expected {kind:?}, but this happened: {:?}", event.kind);
            }
            let what = format!("{kind:?}").to_lowercase();
            let socket = event.socket.file_name().unwrap_or_default().to_string_lossy();
            self.seen(&what, &socket);
        }
        Ok(())
    }
}
