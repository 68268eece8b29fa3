//! Work on many pieces by several threads.

use crate::error::Result;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Does `work` on every piece, on so many threads, in no certain order. The first error ends it.
pub(crate) fn in_parallel<T: Sync>(
    threads: usize,
    pieces: &[T],
    work: impl Fn(&T) -> Result<()> + Sync,
) -> Result<()> {
    let threads = threads.clamp(1, pieces.len().max(1));
    if threads == 1 {
        return pieces.iter().try_for_each(work);
    }
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    let run = || {
        while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = work(piece) {
                next.store(pieces.len(), Ordering::Relaxed);
                failed.lock().expect("no thread panics while it holds the lock").get_or_insert(error);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(run);
        }
        run();
    });
    failed.into_inner().expect("no thread panics while it holds the lock").map_or(Ok(()), Err)
}
