//! The process's memory.

/// Has the threads of this process share one heap, where the C library would give each its own.
///
/// A thread that waits for a disk allocates little and keeps what it was given: with one heap per thread, dozens of
/// them hold megabytes that nobody uses. Call it before threads are started. Tells whether it took effect.
pub fn share() -> bool {
    crate::sys::heap::share()
}

/// Gives pages of the heap that nobody uses back to the kernel. Worth its time once a burst of work is over.
pub fn trim() {
    crate::sys::heap::trim();
}

/// The same, and pages of the program, most of which is run once, at the start. What is run again comes back, a page at
/// a time: that takes some 100 microseconds in all from whoever comes next.
pub fn trim_all() {
    trim();
    crate::sys::code::release();
}
