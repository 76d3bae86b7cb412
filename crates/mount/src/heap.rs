//! The process's memory.

use std::sync::Once;

/// Has the threads of this process share one heap, where the C library would give each its own.
///
/// A thread that waits for a disk allocates little and keeps what it was given: with one heap per thread, dozens of
/// them hold megabytes that nobody uses. Call it before threads are started. Tells whether it took effect.
pub fn share() -> bool {
    crate::sys::heap::share()
}

/// Gives pages that nobody uses back to the kernel: free ones of the heap, and, the first time, those of the program, most
/// of which is run once, at the start. Worth its time once a burst of work is over.
pub fn trim() {
    /// What comes back after the first time is what work needs: to take that away again would cost it time.
    static STARTED: Once = Once::new();
    crate::sys::heap::trim();
    STARTED.call_once(crate::sys::code::release);
}
