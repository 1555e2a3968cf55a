//! Shared code of the fuzz targets.

#[doc(hidden)]
pub use {cap::Cap, libfuzzer_sys};

/// Maximum bytes allocated by the code under test: far above the need of a valid input, far below a
/// harmful amount.
///
/// Nothing is kept between executions, so that a leak of one byte per execution would reach the
/// limit as well.
pub const MOST_HEAP: usize = 16 << 20;

/// Makes a fuzz target of a function over bytes. It must not panic, hang or allocate more than
/// [`MOST_HEAP`].
#[macro_export]
macro_rules! target {
    ($run:path) => {
        #[global_allocator]
        static HEAP: $crate::Cap<std::alloc::System> =
            $crate::Cap::new(std::alloc::System, $crate::MOST_HEAP);

        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| $run(data));
    };
}
