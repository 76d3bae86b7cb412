//! The log of this process, at every level, as one text.

use std::{
    fmt::{Debug, Write},
    sync::{Arc, Mutex, OnceLock},
};

use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<String>>);

impl Log {
    /// Collects the log of all threads: with one collector per thread, the first thread to reach an
    /// event would decide who sees it.
    pub(crate) fn of_process() -> &'static Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        LOG.get_or_init(|| {
            let log = Self::default();
            let subscriber = tracing_subscriber::registry().with(log.clone());
            tracing::subscriber::set_global_default(subscriber).unwrap();
            log
        })
    }

    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        // HTTP/2 libraries log every frame, without its content.
        if event.metadata().target().starts_with("wharf") {
            let mut line = Line(String::new());
            event.record(&mut line);
            writeln!(self.0.lock().unwrap(), "{}", line.0).unwrap();
        }
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}
