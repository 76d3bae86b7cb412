//! The kernel of every controller: keyed operations with back-off and generations.
//!
//! A controller has keys (a socket, a volume, a claim) that it brings from what they are to what
//! they should be. It says *that* a key may need work; this crate decides *when* the work runs:
//!
//! - at most one operation per key at a time, others in parallel up to a limit, first come first
//!   served between keys;
//! - a change that arrives while the operation runs is not lost: the key runs once more after it;
//! - a failed key backs off exponentially, alone; [`Handle::wake`] respects that wait, and
//!   [`Handle::renew`], the word for a new incarnation of the key, ends it;
//! - a panic in an operation is a failure of that key and of nothing else;
//! - a key with nothing left to do is not remembered, and an idle reconciler never wakes up: its
//!   timers are the earliest back-off and, while a key is pending, the look for keys that stay so;
//! - a key that is pending for five minutes is named in the log, once, with the error of its last
//!   run ([`note_error`]).
//!
//! What a key should become is the operation's business: it reads the desired state when it runs,
//! so any number of wake-ups may be folded into one run.
//!
//! - `queue`: which key runs next, as a state machine without clock or tasks.
//! - `driver`: the task that performs what the queue decides, and the [`Reconciler`] that owns it.
//! - `handle`: how the rest of the process talks to it.
//! - `operation`: what a controller supplies.
//! - `backoff`: the waits between failures.
//! - `metrics`: what queues are counted and timed by, under client-go's names.
//! - `turns`: an order by key for what several operations do.

mod backoff;
mod driver;
mod handle;
mod metrics;
mod operation;
mod queue;
mod turns;

pub use backoff::Backoff;
pub use driver::{Config, Reconciler};
pub use handle::Handle;
pub use metrics::{QueueMetrics, WorkqueueMetrics};
pub use operation::{Attempt, Operation, Outcome, note_error};
pub use queue::{KeyState, Phase};
pub use turns::{Turn, Turns};
