//! The kernel of every controller: keyed operations with back-off and generations.
//!
//! A controller has keys (a socket, a volume, a claim) that it brings from their actual to their
//! desired state. It says *that* a key may need work; this crate decides *when* the work runs:
//!
//!
//! * at most one operation per key at a time, others in parallel up to a limit, first come first
//!   served;
//! * a change that arrives while the operation runs is not lost: the key runs once more after it;
//! * a failed key backs off exponentially, alone; [`Handle::wake`] keeps that wait,
//!   [`Handle::renew`], called when the key names a new object, ends it;
//! * a panic in an operation counts as a failure of that key only;
//! * a key without work takes no memory, and an idle reconciler never wakes up: its timers are the
//!   earliest back-off and, while a key is pending, the search for keys that stay pending;
//! * a key that is pending for five minutes is named in the log, once, with the error of its last
//!   run ([`note_error`]).
//!
//! The operation reads the desired state when it runs, so any number of wake-ups may be folded into
//! one run.
//!
//! * `queue`: decides which key runs next, as a state machine without clock or tasks.
//! * `driver`: the task that runs operations as the queue decides, and the [`Reconciler`] that owns
//!   it.
//! * `handle`: lets the rest of the process wake keys.
//! * `operation`: the trait that a controller implements.
//! * `backoff`: the waits between failures.
//! * `metrics`: client-go's `workqueue_*` metrics.
//! * `keyed_locks`: a lock per key, for work that several operations share.

mod backoff;
mod driver;
mod handle;
mod keyed_locks;
mod metrics;
mod operation;
mod queue;

pub use backoff::Backoff;
pub use driver::{Config, Reconciler};
pub use handle::Handle;
pub use keyed_locks::{KeyGuard, KeyedLocks};
pub use metrics::{QueueMetrics, WorkqueueMetrics};
pub use operation::{Attempt, Operation, Outcome, note_error};
pub use queue::{KeyState, Phase};
