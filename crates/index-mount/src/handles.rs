//! Directories that are open, each with a page of its entries.

use crate::protocol::{Entry, Folder};
use canopy_as_user::Accounts;
use canopy_model::Credentials;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many pages are kept of all directories of one account; others are asked for again.
const PAGES_MAX: usize = 64;

/// A directory that is open, and who opened it.
pub(crate) struct Handle {
    pub(crate) folder: Folder,
    pub(crate) who: Credentials,
    account: u32,
}

/// Entries of a directory from one on.
pub(crate) struct Page {
    pub(crate) first: u64,
    pub(crate) entries: Vec<(Vec<u8>, Entry)>,
    /// Whether others follow.
    pub(crate) is_more: bool,
}

#[derive(Default)]
struct All {
    open: HashMap<u64, (Arc<Handle>, Option<Arc<Page>>)>,
    /// The directories of each account that have a page, the oldest first.
    pages: HashMap<u32, VecDeque<u64>>,
}

pub(crate) struct Handles {
    next: AtomicU64,
    all: Mutex<All>,
    accounts: Accounts,
}

impl Handles {
    pub(crate) fn new(accounts: Accounts) -> Self {
        Handles { next: AtomicU64::default(), all: Mutex::default(), accounts }
    }

    /// Returns a directory that somebody opens.
    pub(crate) fn handle(&self, folder: Folder, who: Credentials) -> Handle {
        Handle { folder, account: self.accounts.of(who.uid), who }
    }

    /// Returns a number that no other directory has had.
    pub(crate) fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn open(&self, number: u64, handle: Handle) {
        self.all.lock().open.insert(number, (Arc::new(handle), None));
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<Handle>> {
        self.all.lock().open.get(&number).map(|(handle, _)| handle.clone())
    }

    /// Returns the page of a directory if that has the entry at a place, or the one after the last.
    pub(crate) fn page(&self, number: u64, at: u64) -> Option<Arc<Page>> {
        let all = self.all.lock();
        let page = all.open.get(&number)?.1.as_ref()?;
        let end = page.first + page.entries.len() as u64;
        let has = page.first <= at && (at < end || (at == end && !page.is_more));
        has.then(|| page.clone())
    }

    pub(crate) fn keep_page(&self, number: u64, page: Arc<Page>) {
        let mut all = self.all.lock();
        let All { open, pages } = &mut *all;
        let Some((handle, kept)) = open.get_mut(&number) else { return };
        let is_new = kept.replace(page).is_none();
        let own = pages.entry(handle.account).or_default();
        if is_new {
            own.push_back(number);
        }
        let oldest = if own.len() > PAGES_MAX { own.pop_front() } else { None };
        if let Some((_, page)) = oldest.and_then(|oldest| open.get_mut(&oldest)) {
            *page = None;
        }
    }

    pub(crate) fn close(&self, number: u64) -> Option<Arc<Handle>> {
        let mut all = self.all.lock();
        let (handle, _) = all.open.remove(&number)?;
        if let Some(own) = all.pages.get_mut(&handle.account) {
            own.retain(|one| *one != number);
            if own.is_empty() {
                all.pages.remove(&handle.account);
            }
        }
        Some(handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_an_account_are_bounded() {
        let handles = Handles::new(Accounts::of_ranges(vec![(100_000..200_000, 1)]));
        let handle = |uid| {
            let who = Credentials::new(uid, []);
            let folder = Folder { place: Default::default(), queries: Vec::new() };
            let number = handles.next();
            handles.open(number, handles.handle(folder, who));
            let entries = vec![(b"name".to_vec(), Entry::default())];
            handles.keep_page(number, Arc::new(Page { first: 0, entries, is_more: false }));
            number
        };
        let other = handle(2);
        let mut all: Vec<u64> = (0..PAGES_MAX).map(|_| handle(1)).collect();
        all.extend((100_000..).take(PAGES_MAX).map(handle));
        let kept = all.iter().filter(|number| handles.page(**number, 0).is_some()).count();
        assert_eq!(kept, PAGES_MAX);
        assert!(handles.page(other, 0).is_some() && handles.page(other, 1).is_some());
        assert!(handles.page(other, 2).is_none());
        assert!(all.iter().all(|number| handles.close(*number).is_some()));
        assert!(handles.all.lock().pages.len() == 1 && handles.close(all[0]).is_none());
    }
}
