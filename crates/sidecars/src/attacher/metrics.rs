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

use super::lane::Lane;

/// How long the lines of the two lanes are, counted when asked: those of the attacher that works now, of however many there
/// were. Clones tell of the same one.
#[derive(Clone, Debug, Default)]
pub struct AttacherMetrics(Arc<Mutex<Option<Lanes>>>);

#[derive(Clone, Debug)]
pub(super) struct Lanes {
    pub(super) attach: Arc<Lane>,
    /// Behind that one.
    pub(super) publish: Arc<Lane>,
    pub(super) detach: Arc<Lane>,
}

impl AttacherMetrics {
    /// Adds how many attachments wait for their turn, and for how long, to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }

    pub(super) fn tell_of(&self, lanes: Lanes) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(lanes);
    }
}

impl Collector for AttacherMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let [attach, publish, detach] = match &lanes {
            Some(lanes) => [&lanes.attach, &lanes.publish, &lanes.detach].map(|it| it.waiting()),
            None => Default::default(),
        };
        let attach = (attach.0 + publish.0, attach.1.max(publish.1));
        let lanes = [("attach", attach), ("detach", detach)];
        let mut depth = encoder.encode_descriptor(
            "csi_attacher_waiting",
            "Number of VolumeAttachments that wait for their turn",
            None,
            ConstGauge::new(0i64).metric_type(),
        )?;
        for (lane, (count, _)) in lanes {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            ConstGauge::new(count).encode(depth.encode_family(&[("lane", lane)])?)?;
        }
        let mut age = encoder.encode_descriptor(
            "csi_attacher_oldest_waiting_seconds",
            "How long the first of the VolumeAttachments that wait for their turn has waited",
            None,
            ConstGauge::new(0f64).metric_type(),
        )?;
        for (lane, (_, oldest)) in lanes {
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
    async fn each_lane_tells_its_line() {
        let lane = || Arc::new(Lane::new(1));
        let lanes = Lanes { attach: lane(), publish: lane(), detach: lane() };
        let (attach, publish) = (Arc::clone(&lanes.attach), Arc::clone(&lanes.publish));
        let _turns = (attach.enter("a".into()).await, publish.enter("a".into()).await);
        let mut first = Box::pin(attach.enter("a".into()));
        assert!(is_pending(&mut first));
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        let mut second = Box::pin(publish.enter("a".into()));
        assert!(is_pending(&mut second));
        let mut registry = Registry::default();
        let metrics = AttacherMetrics::default();
        metrics.register(&mut registry);
        metrics.tell_of(lanes);
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
