//! Work on many pieces by several threads.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Does `work` on every piece, on so many threads, in no certain order. The first error ends it.
///
/// # Errors
///
/// Fails with the first error of the work.
pub fn in_parallel<T: Sync, E: Send>(
    threads: usize,
    pieces: &[T],
    work: impl Fn(&T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let threads = threads.clamp(1, pieces.len().max(1));
    by_workers(threads, pieces, |_| Ok(()), |(), piece| work(piece), |()| Ok(()))
}

/// As [`in_parallel`], for work that finds something: each worker adds to what `start` makes, and
/// in the end `merge` makes one of all, in no certain order.
///
/// # Errors
///
/// Fails with the first error of the work.
pub fn merged<T: Sync, S: Send, E: Send>(
    threads: usize,
    pieces: &[T],
    start: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &T) -> Result<(), E> + Sync,
    merge: impl Fn(&mut S, S) + Sync,
) -> Result<S, E> {
    let all = Mutex::new(None);
    let finish = |found| {
        match &mut *all.lock() {
            Some(all) => merge(all, found),
            none => *none = Some(found),
        }
        Ok(())
    };
    by_workers(threads.clamp(1, pieces.len().max(1)), pieces, |_| Ok(start()), work, finish)?;
    Ok(all.into_inner().unwrap_or_else(start))
}

/// As [`merged`], for lists.
///
/// # Errors
///
/// Fails with the first error of the work.
pub fn listed<T: Sync, F: Send, E: Send>(
    threads: usize,
    pieces: &[T],
    work: impl Fn(&T) -> Result<Vec<F>, E> + Sync,
) -> Result<Vec<F>, E> {
    let add = |all: &mut Vec<F>, piece: &T| -> Result<(), E> {
        all.extend(work(piece)?);
        Ok(())
    };
    merged(threads, pieces, Vec::new, add, |all, more| all.extend(more))
}

/// As [`in_parallel`], for work that keeps something from piece to piece: `start` makes it for the
/// worker of that number, `finish` takes it when no piece is left. It is dropped without `finish`
/// after an error.
///
/// # Errors
///
/// Fails with the first error of the work.
pub fn by_workers<T: Sync, S, E: Send>(
    workers: usize,
    pieces: &[T],
    start: impl Fn(usize) -> Result<S, E> + Sync,
    work: impl Fn(&mut S, &T) -> Result<(), E> + Sync,
    finish: impl Fn(S) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<E>> = Mutex::new(None);
    let run = |number: usize| -> Result<(), E> {
        let mut state = start(number)?;
        while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(&mut state, piece)?;
        }
        // Pieces also run out when another worker has failed: what is kept is then worth nothing.
        if failed.lock().is_some() {
            return Ok(());
        }
        finish(state)
    };
    let run = |number: usize| {
        if let Err(error) = run(number) {
            failed.lock().get_or_insert(error);
            next.store(pieces.len(), Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for number in 1..workers {
            scope.spawn(move || run(number));
        }
        run(0);
    });
    failed.into_inner().map_or(Ok(()), Err)
}
