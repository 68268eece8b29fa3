//! Names that the kernel has of directories, where other mounts rename them.
//!
//! The kernel keeps one name of a directory. If a look-up finds it under another one, the kernel moves
//! its old entry there. It cannot do so within rename(2), whose locks that would need: then the call
//! fails with ESTALE. So a mount remembers under which name it has shown each directory. Before it
//! shows another one, it has the kernel forget the old one.
//!
//! That takes the lock of the old directory, which the same rename(2) may have. So it happens in a
//! thread. If the thread does not end in time, the look-up itself fails with ESTALE, once: the kernel
//! gives its locks back and tries the call again.

use canopy_namespace::FileId;
use fuser::{INodeNo, Notifier};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// Directories that are remembered.
const DIRECTORIES_MAX: usize = 1 << 16;

/// Threads that wait for locks of the kernel.
const THREADS_MAX: usize = 16;

/// Time for which a look-up waits for such a thread.
const PATIENCE: Duration = Duration::from_millis(50);

type Name = (INodeNo, OsString);

/// The last names under which the kernel was shown directories.
#[derive(Default)]
pub(crate) struct ShownNames {
    names: Mutex<Names>,
    threads: Arc<AtomicUsize>,
    notifier: OnceLock<Notifier>,
}

#[derive(Default)]
struct Names {
    by_id: HashMap<FileId, Name>,
    by_name: HashMap<Name, FileId>,
}

impl Names {
    /// Notes a name, and returns the one before if that is another.
    fn note(&mut self, id: FileId, name: Name) -> Option<Name> {
        if self.by_id.len() >= DIRECTORIES_MAX {
            *self = Names::default();
        }
        let before = self.by_id.insert(id, name.clone());
        if before.as_ref() == Some(&name) {
            return None;
        }
        if let Some(before) = &before {
            self.by_name.remove(before);
        }
        // A directory that had this name has another one now, or none.
        if let Some(other) = self.by_name.insert(name, id).filter(|other| *other != id) {
            self.by_id.remove(&other);
        }
        before
    }

    fn forget(&mut self, name: &Name) -> Option<FileId> {
        let id = self.by_name.remove(name)?;
        self.by_id.remove(&id);
        Some(id)
    }

    /// Notes that the kernel has given what is under one name another name.
    fn rename(&mut self, old: Name, new: Name, is_exchange: bool) {
        let (moved, other) = (self.forget(&old), self.forget(&new));
        for (id, name) in [(moved, new), (other.filter(|_| is_exchange), old)] {
            if let Some(id) = id {
                self.by_id.insert(id, name.clone());
                self.by_name.insert(name, id);
            }
        }
    }
}

impl ShownNames {
    /// Sets the way to the kernel's memory of names.
    pub(crate) fn set_notifier(&self, notifier: Notifier) {
        // It is set once.
        let _ = self.notifier.set(notifier);
    }

    /// Notes that the kernel is shown a directory under a name, after it has forgotten another name of
    /// it. Returns whether it may be shown now; otherwise the kernel is to ask again.
    pub(crate) fn show(&self, id: FileId, parent: INodeNo, name: &OsStr) -> bool {
        let before = self.names.lock().note(id, (parent, name.to_owned()));
        before.is_none_or(|before| self.have_forgotten(before))
    }

    /// Notes that the kernel has removed a name.
    pub(crate) fn remove(&self, parent: INodeNo, name: &OsStr) {
        self.names.lock().forget(&(parent, name.to_owned()));
    }

    /// Notes that the kernel has given a file another name, or exchanged two.
    pub(crate) fn rename(&self, old: (INodeNo, &OsStr), new: (INodeNo, &OsStr), is_exchange: bool) {
        let [old, new] = [old, new].map(|(parent, name)| (parent, name.to_owned()));
        self.names.lock().rename(old, new, is_exchange);
    }

    fn have_forgotten(&self, (parent, name): Name) -> bool {
        let Some(notifier) = self.notifier.get().cloned() else { return true };
        if self.threads.fetch_add(1, Ordering::Relaxed) >= THREADS_MAX {
            self.threads.fetch_sub(1, Ordering::Relaxed);
            return true;
        }
        let (threads, (done, is_done)) = (self.threads.clone(), channel());
        let forget = move || {
            // The kernel may have forgotten it already.
            let _ = notifier.inval_entry(parent, &name);
            threads.fetch_sub(1, Ordering::Relaxed);
            let _ = done.send(());
        };
        match thread::Builder::new().name("mount-forget".into()).spawn(forget) {
            Ok(_) => is_done.recv_timeout(PATIENCE).is_ok(),
            Err(_) => {
                self.threads.fetch_sub(1, Ordering::Relaxed);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_before_is_known_unless_the_kernel_has_changed_it() {
        let mut names = Names::default();
        let name = |parent, text: &str| (INodeNo(parent), OsString::from(text));
        let [one, other] = [FileId(7), FileId(8)];
        assert_eq!(names.note(one, name(1, "a")), None);
        assert_eq!(names.note(one, name(1, "a")), None);
        assert_eq!(names.note(one, name(2, "b")), Some(name(1, "a")));
        assert_eq!(names.forget(&name(2, "b")), Some(one));
        assert_eq!(names.note(one, name(3, "c")), None);
        // Another directory gets the name.
        assert_eq!(names.note(other, name(3, "c")), None);
        assert_eq!(names.note(one, name(4, "d")), None);
        assert_eq!(names.note(other, name(5, "e")), Some(name(3, "c")));
        names.rename(name(5, "e"), name(4, "d"), true);
        assert_eq!(names.note(one, name(6, "f")), Some(name(5, "e")));
        names.rename(name(6, "f"), name(4, "d"), false);
        assert_eq!(names.note(one, name(7, "g")), Some(name(4, "d")));
        assert_eq!(names.note(other, name(8, "h")), None);
        assert_eq!(names.by_id.len(), names.by_name.len());
    }
}
