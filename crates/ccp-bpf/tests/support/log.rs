//! The events that the library logs in this process, for tests that promise them.

use std::fmt::{Debug, Write};
use std::sync::{Mutex, OnceLock};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

static LINES: OnceLock<Mutex<Vec<String>>> = OnceLock::new();

struct Collector;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("ccp_bpf")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        let lines = LINES.get_or_init(Mutex::default);
        lines.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Collects from now on.
pub(crate) fn collect() {
    // A second call finds the first one's collector.
    let _ = tracing::subscriber::set_global_default(Collector);
}

/// The lines that contain a text.
pub(crate) fn lines_with(text: &str) -> Vec<String> {
    let lines = LINES.get_or_init(Mutex::default).lock().unwrap();
    lines
        .iter()
        .filter(|line| line.contains(text))
        .cloned()
        .collect()
}
