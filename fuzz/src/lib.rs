//! Code shared by the fuzz targets.

#[doc(hidden)]
pub use {cap::Cap, libfuzzer_sys};

/// Maximum number of bytes that the code under test may allocate: far above the need of a valid
/// input, far below a harmful amount.
///
/// Executions share no state, so a leak of one byte per execution would also reach the limit.
pub const MOST_HEAP: usize = 16 << 20;

/// Defines a fuzz target that passes its input to a function over bytes. The function must not
/// panic, hang or allocate more than [`MOST_HEAP`].
#[macro_export]
macro_rules! target {
    ($run:path) => {
        #[global_allocator]
        static HEAP: $crate::Cap<std::alloc::System> =
            $crate::Cap::new(std::alloc::System, $crate::MOST_HEAP);

        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| $run(data));
    };
}
