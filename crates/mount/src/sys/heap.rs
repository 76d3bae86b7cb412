//! The allocator of the C library.

/// Has all threads share one heap, from now on.
pub(crate) fn share() -> bool {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it sets a number that is read when a thread allocates for the first time, under
        // the allocator's own lock; heaps that are there already stay usable.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) == 1 }
    }
    #[cfg(not(target_env = "gnu"))]
    {
        true
    }
}

/// Gives pages that nobody uses back to the kernel.
pub(crate) fn trim() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it takes the allocator's locks like any other of its calls, and moves nothing.
        unsafe { libc::malloc_trim(0) };
    }
}
