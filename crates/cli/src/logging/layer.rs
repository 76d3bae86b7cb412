use std::{fmt, sync::Arc};

use jiff::{Timestamp, tz::TimeZone};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::Visit,
    level_filters::LevelFilter,
    span::{Attributes, Id, Record as SpanRecord},
};
use tracing_subscriber::{
    Layer,
    layer::Context,
    registry::{LookupSpan, Scope},
};

use super::{
    LogFormat, LogOptions,
    filter::Filter,
    json,
    output::Output,
    record::{Fields, Record},
    text::Text,
};

/// Writes events as lines. Made by [`LogOptions::layer_for`].
pub struct LogLayer {
    filter: Filter,
    format: LogFormat,
    text: Text,
    clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    output: Arc<Output>,
}

impl fmt::Debug for LogLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogLayer")
            .field("filter", &self.filter)
            .field("format", &self.format)
            .field("output", &self.output)
            .finish_non_exhaustive()
    }
}

impl LogLayer {
    pub(super) fn new(options: &LogOptions, output: Arc<Output>) -> Self {
        Self {
            filter: Filter { verbosity: options.verbosity, vmodule: options.vmodule.clone() },
            format: options.format,
            text: Text {
                pid: std::process::id(),
                zone: TimeZone::try_system().unwrap_or(TimeZone::UTC),
                skip_headers: options.skip_headers,
                add_dir_header: options.add_dir_header,
            },
            clock: Box::new(Timestamp::now),
            output,
        }
    }

    /// The same layer with a fixed time and process ID, for tests that compare whole lines.
    #[must_use]
    pub fn frozen_at(mut self, time: Timestamp, pid: u32) -> Self {
        self.clock = Box::new(move || time);
        self.text.zone = TimeZone::UTC;
        self.text.pid = pid;
        self
    }
}

impl<S> Layer<S> for LogLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.filter.enabled(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.filter.max_level())
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields as &mut dyn Visit);
            span.extensions_mut().replace(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &SpanRecord<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields as &mut dyn Visit);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in context.event_scope(event).into_iter().flat_map(Scope::from_root) {
            if let Some(outer) = span.extensions().get::<Fields>() {
                fields.extend(outer);
            }
        }
        event.record(&mut fields as &mut dyn Visit);
        let metadata = event.metadata();
        let level = *metadata.level();
        let record = Record {
            time: (self.clock)(),
            level,
            file: metadata.file().unwrap_or("???"),
            line: metadata.line().unwrap_or(1),
            fields,
        };
        let line = match self.format {
            LogFormat::Text => self.text.format(&record),
            LogFormat::Json => json::format(&record),
        };
        self.output.write(level == Level::ERROR, line.as_bytes());
    }
}
