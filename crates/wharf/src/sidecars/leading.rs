use tokio::sync::watch;

/// Whether this replica leads. Its standby work pauses while it does.
#[derive(Default)]
pub(super) struct Leading(watch::Sender<bool>);

/// Marks the replica as the leader until it is dropped.
pub(super) struct LeadingGuard<'a>(&'a Leading);

impl Leading {
    pub(super) fn begin(&self) -> LeadingGuard<'_> {
        self.0.send_replace(true);
        LeadingGuard(self)
    }

    /// Waits until the replica leads, or until it does not.
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
