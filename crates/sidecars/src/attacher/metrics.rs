use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::gauge::ConstGauge,
    registry::Registry,
};

use super::fair_semaphore::FairSemaphore;

/// Metrics of waiting attachments, read from the running attacher. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct AttacherMetrics(Arc<Mutex<Option<AttacherSemaphores>>>);

#[derive(Clone, Debug)]
pub(super) struct AttacherSemaphores {
    pub(super) attach: Arc<FairSemaphore>,
    /// Acquired after `attach`.
    pub(super) publish: Arc<FairSemaphore>,
    pub(super) detach: Arc<FairSemaphore>,
}

impl AttacherMetrics {
    /// Registers the number of waiting attachments and the longest wait.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }

    pub(super) fn observe(&self, semaphores: AttacherSemaphores) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(semaphores);
    }
}

impl Collector for AttacherMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let semaphores = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let [attach, publish, detach] = match &semaphores {
            Some(semaphores) => {
                [&semaphores.attach, &semaphores.publish, &semaphores.detach].map(|it| it.waiting())
            }
            None => Default::default(),
        };
        let attach = (attach.0 + publish.0, attach.1.max(publish.1));
        let semaphores = [("attach", attach), ("detach", detach)];
        let mut depth = encoder.encode_descriptor(
            "csi_attacher_waiting",
            "Number of VolumeAttachments that wait for other calls to end",
            None,
            ConstGauge::new(0i64).metric_type(),
        )?;
        for (lane, (count, _)) in semaphores {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            ConstGauge::new(count).encode(depth.encode_family(&[("lane", lane)])?)?;
        }
        let mut age = encoder.encode_descriptor(
            "csi_attacher_oldest_waiting_seconds",
            "Longest wait of a VolumeAttachment for other calls to end",
            None,
            ConstGauge::new(0f64).metric_type(),
        )?;
        for (lane, (_, oldest)) in semaphores {
            ConstGauge::new(oldest.as_secs_f64()).encode(age.encode_family(&[("lane", lane)])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_lane_reports_its_waiters() {
        let lane = || Arc::new(FairSemaphore::new(1));
        let semaphores = AttacherSemaphores { attach: lane(), publish: lane(), detach: lane() };
        let (attach, publish) = (Arc::clone(&semaphores.attach), Arc::clone(&semaphores.publish));
        let _permit = (attach.acquire("a".into()).await, publish.acquire("a".into()).await);
        let mut first = Box::pin(attach.acquire("a".into()));
        assert!(is_pending(&mut first));
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        let mut second = Box::pin(publish.acquire("a".into()));
        assert!(is_pending(&mut second));
        let mut registry = Registry::default();
        let metrics = AttacherMetrics::default();
        metrics.register(&mut registry);
        metrics.observe(semaphores);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "csi_attacher_waiting{lane=\"attach\"} 2",
            "csi_attacher_waiting{lane=\"detach\"} 0",
            "csi_attacher_oldest_waiting_seconds{lane=\"attach\"} 2.0",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    fn is_pending(waiting: &mut std::pin::Pin<Box<impl Future>>) -> bool {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        waiting.as_mut().poll(&mut context).is_pending()
    }
}
