//! What the fuzz targets have in common.

#[doc(hidden)]
pub use {cap::Cap, libfuzzer_sys};

/// Most bytes that the code under test may have allocated at any time: far above what an honest input needs, far below what hurts.
///
/// Nothing is kept from one execution to the next, so that a leak of a byte an execution would reach this as well.
pub const MOST_HEAP: usize = 16 << 20;

/// Makes a target of a function that takes bytes: it must not panic, not hang and not allocate more than [`MOST_HEAP`].
#[macro_export]
macro_rules! target {
    ($run:path) => {
        #[global_allocator]
        static HEAP: $crate::Cap<std::alloc::System> = $crate::Cap::new(std::alloc::System, $crate::MOST_HEAP);

        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| $run(data));
    };
}
