use std::{
    fmt,
    io::Write,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

type Stream = Box<dyn Write + Send>;

/// The streams of a log: one, or one for errors and one, possibly buffered, for the rest.
///
/// Errors of writing are ignored: there is nowhere to report them.
pub(super) struct Output {
    state: Mutex<State>,
    changed: Condvar,
    capacity: usize,
}

struct State {
    errors: Stream,
    infos: Option<Stream>,
    buffer: Vec<u8>,
    closed: bool,
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl Output {
    pub(super) fn single(stream: Stream) -> Self {
        Self::new(stream, None, 0)
    }

    pub(super) fn split(errors: Stream, infos: Stream, capacity: usize) -> Self {
        Self::new(errors, Some(infos), capacity)
    }

    fn new(errors: Stream, infos: Option<Stream>, capacity: usize) -> Self {
        let state = State { errors, infos, buffer: Vec::new(), closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), capacity }
    }

    pub(super) fn is_buffered(&self) -> bool {
        self.capacity > 0
    }

    /// Writes one line. Buffered lines are written before an error: they may explain it, and the
    /// process may be about to end.
    pub(super) fn write(&self, is_error: bool, line: &[u8]) {
        let mut state = self.lock();
        let full = state.buffer.len() + line.len() > self.capacity;
        if is_error || full || state.closed {
            state.flush();
        }
        if !is_error && state.infos.is_some() && line.len() <= self.capacity && !state.closed {
            state.buffer.extend_from_slice(line);
            drop(state);
            self.changed.notify_one();
            return;
        }
        let state = &mut *state;
        let stream = match &mut state.infos {
            Some(infos) if !is_error => infos,
            _ => &mut state.errors,
        };
        drop(stream.write_all(line).and_then(|()| stream.flush()));
    }

    /// Flushes each buffered line after at most `every`; returns when closed. Sleeps while the
    /// buffer is empty.
    pub(super) fn flush_until_closed(&self, every: Duration) {
        let mut state = self.lock();
        while !state.closed {
            if state.buffer.is_empty() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.changed.wait_timeout_while(state, every, |state| !state.closed);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.flush();
        }
    }

    /// Flushes the buffer and ends buffering.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.flush();
        drop(state);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A writer that panicked leaves an incomplete line at worst.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn flush(&mut self) {
        if let Some(infos) = self.infos.as_mut().filter(|_| !self.buffer.is_empty()) {
            drop(infos.write_all(&self.buffer).and_then(|()| infos.flush()));
            self.buffer.clear();
        }
    }
}
