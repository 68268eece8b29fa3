//! Attributes of files that were just made, for the kernel's question right after that.
//!
//! Where servers have the attributes, the kernel caches none of files. So open(2) with `O_CREAT` asks
//! for those of the file that it has just made, to check the mode: the same thread, in the same call.
//! It gets those that the file was made with. No later question does: each answer is given once, to
//! that thread, and kept for a moment only.

use canopy_namespace::{FileId, Inode};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Threads that are remembered.
const THREADS: usize = 1 << 10;

/// Time within which the kernel asks.
const MOMENT: Duration = Duration::from_millis(100);

/// Files that were just made, by thread.
#[derive(Default)]
pub(crate) struct Created(Mutex<HashMap<u32, (Inode, Instant)>>);

impl Created {
    /// Remembers a file that a thread has made.
    pub(crate) fn note(&self, thread: u32, inode: Inode) {
        let mut all = self.0.lock();
        if all.len() >= THREADS {
            all.clear();
        }
        all.insert(thread, (inode, Instant::now()));
    }

    /// Returns the file that a thread has made last, if it is this one, once.
    pub(crate) fn take(&self, thread: u32, id: FileId) -> Option<Inode> {
        let (inode, made) = self.0.lock().remove(&thread)?;
        (inode.id == id && made.elapsed() < MOMENT).then_some(inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_given_once_to_its_thread() {
        let (created, id) = (Created::default(), FileId(7));
        let inode = Inode { id, ..Inode::default() };
        created.note(1, inode.clone());
        assert_eq!(created.take(2, id), None);
        assert_eq!(created.take(1, id), Some(inode.clone()));
        assert_eq!(created.take(1, id), None);
        created.note(1, inode);
        assert_eq!(created.take(1, FileId(8)), None);
        assert_eq!(created.take(1, id), None);
    }
}
