//! Tasks on several threads.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Does each task on one of the workers, in about the order given, and returns the results in the
/// order of the tasks. The first error ends the work of all. Blocks.
pub fn parallel<W: Send, T: Send, R: Send, E: Send>(
    workers: &mut [W],
    tasks: Vec<T>,
    work: impl Fn(&mut W, T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let queue = Mutex::new(tasks.into_iter().enumerate());
    let stopped = AtomicBool::new(false);
    let next = || queue.lock().next();
    let run = |worker: &mut W| -> Result<Vec<(usize, R)>, E> {
        let mut done = Vec::new();
        while let Some((number, task)) = next().filter(|_| !stopped.load(Ordering::Relaxed)) {
            let result = work(worker, task);
            stopped.fetch_or(result.is_err(), Ordering::Relaxed);
            done.push((number, result?));
        }
        Ok(done)
    };
    let mut done = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> =
            workers.iter_mut().map(|worker| scope.spawn(move || run(worker))).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect::<Vec<_>>().into_iter().collect::<Result<Vec<_>, E>>()
    })?
    .into_iter()
    .flatten()
    .collect::<Vec<_>>();
    done.sort_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}
