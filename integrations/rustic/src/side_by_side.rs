//! Concurrent blocking calls, one per item of a list.

use std::{
    sync::{Mutex, PoisonError},
    thread,
};

/// Runs `act` on each item, and returns the results in any order. After the first error, which is
/// returned, it starts no further item.
///
/// Uses up to [`SIDE_BY_SIDE`] threads including the caller's, because each call blocks on the
/// daemon. If the system refuses threads, fewer are used.
pub(crate) fn each<I, T, E>(
    items: Vec<I>,
    act: impl Fn(I) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E>
where
    I: Send,
    T: Send,
    E: Send,
{
    let helpers = items.len().min(SIDE_BY_SIDE).saturating_sub(1);
    let left = Mutex::new(items.into_iter());
    let done = Mutex::new(Ok(Vec::new()));
    let work = || {
        while let Some(item) = next(&left) {
            let result = act(item);
            if !add(&done, result) {
                return;
            }
        }
    };
    thread::scope(|threads| {
        for _ in 0..helpers {
            if thread::Builder::new()
                .name("nicstripe-list".into())
                .spawn_scoped(threads, work)
                .is_err()
            {
                break;
            }
        }
        work();
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn next<I>(left: &Mutex<impl Iterator<Item = I>>) -> Option<I> {
    left.lock().unwrap_or_else(PoisonError::into_inner).next()
}

/// Adds a result to `done`. Returns true unless this or an earlier result is an error.
fn add<T, E>(done: &Mutex<Result<Vec<T>, E>>, result: Result<T, E>) -> bool {
    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
    match (&mut *done, result) {
        (Ok(results), Ok(result)) => results.push(result),
        (Ok(_), Err(error)) => *done = Err(error),
        (Err(_), _) => {}
    }
    done.is_ok()
}

/// Maximum number of threads for one list. It is well below the 64 concurrent requests that a
/// session accepts, because other calls use the session as well. Not measured.
const SIDE_BY_SIDE: usize = 16;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn each_is_done_once() {
        let mut squares = each((0..1000_u64).collect(), |number| {
            Ok::<_, ()>(number * number)
        })
        .unwrap_or_default();
        squares.sort_unstable();
        assert_eq!(
            squares,
            (0..1000).map(|number| number * number).collect::<Vec<_>>()
        );
        assert_eq!(each(Vec::<u64>::new(), Ok::<_, ()>), Ok(Vec::new()));
    }

    #[test]
    fn the_first_error_ends_it() {
        let begun = AtomicUsize::new(0);
        let result = each((0..10_000).collect(), |number| {
            begun.fetch_add(1, Ordering::Relaxed);
            if number < 5 { Ok(number) } else { Err("six") }
        });
        assert_eq!(result, Err("six"));
        // Each thread may have started one more.
        assert!(begun.into_inner() <= 5 + SIDE_BY_SIDE);
    }
}
