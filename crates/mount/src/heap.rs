//! Memory use of this process.

/// Makes all threads of this process share one heap; by default the C library gives each thread its
/// own.
///
/// A thread that waits for a disk allocates little but keeps its heap: with one heap per thread,
/// dozens of threads hold megabytes of unused memory. Call it before starting threads. Returns
/// whether it took effect.
pub fn share() -> bool {
    crate::sys::heap::share()
}

/// Returns unused pages of the heap to the kernel. Call it after a burst of work.
pub fn trim() {
    crate::sys::heap::trim();
}

/// Like [`trim`], and also drops the pages of the program's code, most of which runs only at
/// startup. Code that runs again is mapped again page by page, which costs the next callers about
/// 100 microseconds in total.
pub fn trim_all() {
    trim();
    crate::sys::code::release();
}
