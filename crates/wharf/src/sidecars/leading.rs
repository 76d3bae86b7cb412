use tokio::sync::watch;

/// Whether this replica leads, for its own work as a standby.
#[derive(Default)]
pub(super) struct Leading(watch::Sender<bool>);

/// Lasts for as long as a replica leads.
pub(super) struct LeadingGuard<'a>(&'a Leading);

impl Leading {
    pub(super) fn begin(&self) -> LeadingGuard<'_> {
        self.0.send_replace(true);
        LeadingGuard(self)
    }

    /// Waits until the replica leads, or does not.
    pub(super) async fn is(&self, leading: bool) {
        // The sender is held by `self`.
        let _ = self.0.subscribe().wait_for(|now| *now == leading).await;
    }
}

impl Drop for LeadingGuard<'_> {
    fn drop(&mut self) {
        self.0.0.send_replace(false);
    }
}
