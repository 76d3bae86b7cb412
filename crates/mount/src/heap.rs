//! The process's memory.

/// Has the threads of this process share one heap, where the C library would give each its own.
///
/// A thread that waits for a disk allocates little and keeps what it was given: with one heap per thread, dozens of
/// them hold megabytes that nobody uses. Call it before threads are started. Tells whether it took effect.
pub fn share() -> bool {
    crate::sys::heap::share()
}

/// Gives pages that nobody uses back to the kernel: free ones of the heap, and those of the program, of which what is run
/// comes back. Most of a program is run once, at its start. Worth its time once a burst of work is over.
pub fn trim() {
    crate::sys::heap::trim();
    crate::sys::code::release();
}
