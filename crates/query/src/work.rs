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
    by_workers(threads, pieces, |_| Ok(()), |(), piece| work(piece), |()| Ok(()))
}

/// As [`in_parallel`], for work that keeps something from piece to piece: `start` makes it for the
/// worker of that number, `finish` takes it when no piece is left. It is dropped without `finish`
/// after an error.
pub(crate) fn by_workers<T: Sync, S>(
    workers: usize,
    pieces: &[T],
    start: impl Fn(usize) -> Result<S> + Sync,
    work: impl Fn(&mut S, &T) -> Result<()> + Sync,
    finish: impl Fn(S) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    let run = |number: usize| -> Result<()> {
        let mut state = start(number)?;
        while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(&mut state, piece)?;
        }
        // Pieces also run out when another worker has failed: what is kept is then worth nothing.
        if failed.lock().expect("no thread panics while it holds the lock").is_some() {
            return Ok(());
        }
        finish(state)
    };
    let run = |number: usize| {
        if let Err(error) = run(number) {
            failed.lock().expect("no thread panics while it holds the lock").get_or_insert(error);
            next.store(pieces.len(), Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for number in 1..workers {
            scope.spawn(move || run(number));
        }
        run(0);
    });
    failed.into_inner().expect("no thread panics while it holds the lock").map_or(Ok(()), Err)
}
