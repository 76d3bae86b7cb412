//! The C library's allocator.

/// Makes all threads share one heap from now on.
pub(crate) fn share() -> bool {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the call sets a number that the allocator reads under its own lock when a thread
        // allocates for the first time; existing heaps stay valid.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) == 1 }
    }
    #[cfg(not(target_env = "gnu"))]
    {
        true
    }
}

/// Returns unused pages to the kernel.
pub(crate) fn trim() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the call takes the allocator's locks, as all its functions do, and moves no
        // allocation.
        unsafe { libc::malloc_trim(0) };
    }
}
