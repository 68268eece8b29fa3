//! A namespace as the user behind a request sees it: servers check what that user may do, since they do
//! not trust this machine to.
//!
//! Contents are not operations. A file is opened for the user ([`FileContents::open_for`]), and who
//! reads and writes it later has it open.

use canopy_fuse::caller::credentials;
use canopy_model::Credentials;
use canopy_model::Wanted;
use canopy_namespace::operation::{Caller, LocalFile, Moment, Operation, PastHandle, Plan, Query};
use canopy_namespace::{
    Entry, Execute, Extent, FileContents, FileId, Found, Inode, Listing, Pace, Privileges, Reply,
    Result,
};
use fuser::Request;
use std::sync::Arc;

/// A namespace whose trusted caller is replaced by a user.
struct Asking {
    namespace: Arc<dyn Execute>,
    who: Credentials,
}

/// Returns a namespace that executes operations for the process behind a request.
///
/// # Errors
///
/// Fails if the process has gone, so that its groups cannot be found out.
pub(crate) fn of(namespace: &Arc<dyn Execute>, request: &Request) -> Result<Arc<dyn Execute>> {
    let who = credentials(request.uid(), request.gid(), request.pid())?;
    Ok(Arc::new(Asking { namespace: namespace.clone(), who }))
}

/// Returns a namespace that executes operations for a user.
pub(crate) fn of_user(namespace: &Arc<dyn Execute>, who: &Credentials) -> Arc<dyn Execute> {
    Arc::new(Asking { namespace: namespace.clone(), who: who.clone() })
}

impl Execute for Asking {
    fn execute_for(&self, caller: Caller<'_>, operation: &Operation<'_>) -> Result<Reply> {
        let caller = match caller {
            Caller::Trusted => Caller::User(&self.who),
            user => user,
        };
        self.namespace.execute_for(caller, operation)
    }

    fn list_entries(
        &self,
        at: Moment,
        listing: &mut Listing,
        after: u64,
        tell: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        let namespace: &dyn Execute = self;
        namespace.list_by_parts(at, listing, after, tell)
    }

    fn run_query(
        &self,
        query: &Query<'_>,
        pace: Pace<'_>,
        tell: &mut dyn FnMut(Found) -> bool,
    ) -> Result<()> {
        self.namespace.run_query(query, pace, tell)
    }

    fn explain_query(&self, query: &Query<'_>, counts: bool, pace: Pace<'_>) -> Result<Plan> {
        self.namespace.explain_query(query, counts, pace)
    }
}

impl FileContents for Asking {
    fn open(&self, id: FileId) -> Result<()> {
        self.namespace.open(id)
    }

    fn open_new(&self, inode: &Inode) -> Result<()> {
        self.namespace.open_new_for(&self.who, inode)
    }

    fn open_for(&self, who: &Credentials, wanted: Wanted, id: FileId) -> Result<()> {
        self.namespace.open_for(who, wanted, id)
    }

    fn open_new_for(&self, who: &Credentials, inode: &Inode) -> Result<()> {
        self.namespace.open_new_for(who, inode)
    }

    fn close(&self, id: FileId) -> Result<()> {
        self.namespace.close(id)
    }

    fn is_here(&self, id: FileId, part: Extent, writes: bool) -> Result<bool> {
        self.namespace.is_here(id, part, writes)
    }

    fn read_at(
        &self,
        id: FileId,
        offset: u64,
        length: usize,
        notes_access: bool,
    ) -> Result<Vec<u8>> {
        self.namespace.read_at(id, offset, length, notes_access)
    }

    fn write_at(
        &self,
        id: FileId,
        offset: u64,
        bytes: &[u8],
        privileges: Privileges<'_>,
    ) -> Result<usize> {
        self.namespace.write_at(id, offset, bytes, privileges)
    }

    fn append_offset(&self, id: FileId) -> Result<Option<u64>> {
        self.namespace.append_offset(id)
    }

    fn allocate_at(
        &self,
        id: FileId,
        mode: i32,
        part: Extent,
        privileges: Privileges<'_>,
    ) -> Result<()> {
        self.namespace.allocate_at(id, mode, part, privileges)
    }

    fn seek_from(&self, id: FileId, is_hole: bool, offset: u64) -> Result<u64> {
        self.namespace.seek_from(id, is_hole, offset)
    }

    fn publish(&self, id: FileId) -> Result<()> {
        self.namespace.publish(id)
    }

    fn sync_contents(&self, id: FileId) -> Result<()> {
        self.namespace.sync_contents(id)
    }

    fn local_file(&self, id: FileId) -> Option<LocalFile> {
        self.namespace.local_file(id)
    }

    fn lend_for_writing(&self, id: FileId) -> Result<()> {
        self.namespace.lend_for_writing(id)
    }

    fn bytes_to_copy(&self, id: FileId) -> Result<u64> {
        self.namespace.bytes_to_copy(id)
    }

    fn copy_before_change(&self, id: FileId) -> Result<()> {
        self.namespace.copy_before_change(id)
    }

    fn open_past_file(&self, snapshot: u64, id: FileId) -> Result<PastHandle> {
        self.namespace.open_past_file_for(&self.who, snapshot, id)
    }

    fn open_past_file_for(
        &self,
        who: &Credentials,
        snapshot: u64,
        id: FileId,
    ) -> Result<PastHandle> {
        self.namespace.open_past_file_for(who, snapshot, id)
    }

    fn past_bytes(&self, handle: PastHandle) -> Result<u64> {
        self.namespace.past_bytes(handle)
    }

    fn read_past_at(&self, handle: PastHandle, offset: u64, length: usize) -> Result<Vec<u8>> {
        self.namespace.read_past_at(handle, offset, length)
    }

    fn past_data_from(&self, handle: PastHandle, offset: u64) -> Result<u64> {
        self.namespace.past_data_from(handle, offset)
    }

    fn close_past_file(&self, handle: PastHandle) {
        self.namespace.close_past_file(handle);
    }
}
