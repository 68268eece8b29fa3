//! Requests about quotas, as servers answer them. The authority knows limits, and asks all servers
//! for usage: sums include files that are on their way from one server to another.

use super::holder::PAGE;
use super::{AUTHORITY, ShareMessage, ShareReply, ShareRequest};
use crate::error::{Error, Result};
use crate::message::{Request, Response, Sender};
use crate::peers::Peers;
use crate::server::Server;
use canopy_namespace::operation::{Caller, Moment, Operation, QuotasRequest, Read};
use canopy_namespace::quota::{Account, Limits, Quota, Usage};
use canopy_namespace::{FileId, Reply};
use canopy_partition::Amounts;
use rustix::io::Errno;
use std::collections::BTreeMap;

impl Server {
    /// Answers a request about quotas.
    pub(crate) fn on_quotas(
        &self,
        peers: &dyn Peers,
        caller: Caller<'_>,
        quotas: &QuotasRequest,
    ) -> Result<Reply> {
        Operation::Quotas(*quotas).check_caller(caller)?;
        if let QuotasRequest::OfTree(id) = quotas {
            return self.quota_of_tree(peers, caller, *id);
        }
        if self.id != AUTHORITY {
            return Err(Error::Unfit);
        }
        match quotas {
            QuotasRequest::All => self.all_quotas(peers).map(Reply::Quotas),
            QuotasRequest::Of(account) => self.quota(peers, *account).map(Reply::Quotas),
            QuotasRequest::Set(account, limits) => {
                let limits = match account {
                    // The directory of a tree stays.
                    Account::Tree(_) => {
                        Limits { directory: self.limits_of(*account).0.directory, ..*limits }
                    }
                    _ => *limits,
                };
                self.set_limits(peers, *account, limits).map(|()| Reply::Done)
            }
            QuotasRequest::SetTree(directory, limits) => {
                self.set_tree(peers, *directory, *limits).map(Reply::Account)
            }
            QuotasRequest::RemoveTree(directory) => {
                let Some(project) = self.project_of(*directory) else {
                    return Ok(Reply::Truth(false));
                };
                self.set_limits(peers, Account::Tree(project), Limits::default())?;
                Ok(Reply::Truth(true))
            }
            QuotasRequest::RemoveTreeOfNumber(project) => {
                self.set_limits(peers, Account::Tree(*project), Limits::default())?;
                Ok(Reply::Truth(true))
            }
            QuotasRequest::OfTree(_) => Err(Error::Unfit),
        }
    }

    /// Answers a request of a server, or of a client that marks trees.
    pub(crate) fn on_shares(
        &self,
        peers: &dyn Peers,
        caller: Caller<'_>,
        request: &ShareRequest,
    ) -> Result<Response> {
        if caller.user().is_some_and(|who| !who.is_root()) {
            return Err(canopy_namespace::Error::from(Errno::PERM).into());
        }
        match request {
            ShareRequest::Obtain(server, shortage) if self.id == AUTHORITY => {
                self.obtain_for(peers, *server, shortage).map(Response::Obtained)
            }
            ShareRequest::Quotas(after) if self.id == AUTHORITY => {
                if after.is_none() && !self.trees().is_empty() {
                    // Trees that have gone are listed no more.
                    self.all_quotas(peers)?;
                }
                let (quotas, next) = self.some_quotas(peers, *after)?;
                Ok(Response::Quotas(quotas, next))
            }
            ShareRequest::Trees if self.id == AUTHORITY => Ok(Response::Trees(self.trees())),
            ShareRequest::SetProject(id, project) => {
                self.set_project(peers, *id, *project)?;
                Ok(Response::Done(true))
            }
            ShareRequest::FilesOf(project) => {
                let mut files = self.tablet.files_of(*project)?;
                files.truncate(PAGE);
                Ok(Response::Files(files))
            }
            ShareRequest::Obtain(..) | ShareRequest::Quotas(_) | ShareRequest::Trees => {
                Err(Error::Unfit)
            }
        }
    }

    /// Returns usage and limits of the tree that a file here is counted to, if it has limits.
    fn quota_of_tree(&self, peers: &dyn Peers, caller: Caller<'_>, id: FileId) -> Result<Reply> {
        self.tablet.check_reading(caller, id)?;
        let stat = Operation::Read(Moment::Now, Read::Inode(id));
        let Reply::Inode(inode) = self.execute(Caller::Trusted, &stat)? else {
            return Err(Error::Unfit);
        };
        if inode.project == 0 {
            return Ok(Reply::Quotas(Vec::new()));
        }
        let ask = Operation::Quotas(QuotasRequest::Of(Account::Tree(inode.project)));
        match peers.ask(AUTHORITY, Sender::SERVER, &Request::Execute(ask))? {
            Response::Reply(Reply::Quotas(mut quotas)) => {
                quotas.retain(|quota| !quota.limits.are_none());
                Ok(Reply::Quotas(quotas))
            }
            _ => Err(Error::Unfit),
        }
    }

    /// Authority: returns usage and limits of an account; none where nothing is counted.
    fn quota(&self, peers: &dyn Peers, account: Account) -> Result<Vec<Quota>> {
        if !self.has_limits() {
            return Ok(Vec::new());
        }
        let mut sum = [0; 2];
        for server in self.layout.servers() {
            match self.tell(peers, server, ShareMessage::UsedBy(account))? {
                ShareReply::Used(used) => used.iter().for_each(|(_, used)| add(&mut sum, *used)),
                _ => return Err(Error::Unfit),
            }
        }
        let (limits, since_ns) = self.limits_of(account);
        Ok(vec![quota_of(account, sum, limits, since_ns)])
    }

    /// Authority: returns usage and limits of all accounts, in their order.
    fn all_quotas(&self, peers: &dyn Peers) -> Result<Vec<Quota>> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let (page, next) = self.some_quotas(peers, after)?;
            all.extend(page);
            match next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        self.end_gone_trees(peers, &all)?;
        all.retain(|quota: &Quota| {
            let is_listed = || self.limits_of(quota.account).0 != Limits::default();
            quota.usage.inodes > 0 || quota.usage.bytes > 0 || is_listed()
        });
        Ok(all)
    }

    /// Authority: returns usage and limits of some accounts behind one, and the last one that was
    /// looked at; none if no others follow.
    pub(super) fn some_quotas(
        &self,
        peers: &dyn Peers,
        after: Option<Account>,
    ) -> Result<(Vec<Quota>, Option<Account>)> {
        let mut sums: BTreeMap<Account, Amounts> = BTreeMap::new();
        // Sums are complete up to the first account of which a server may have more.
        let mut end: Option<Account> = None;
        for server in self.layout.servers() {
            let used = match self.tell(peers, server, ShareMessage::Used(after))? {
                ShareReply::Used(used) => used,
                _ => return Err(Error::Unfit),
            };
            if used.len() >= PAGE
                && let Some((last, _)) = used.last()
            {
                end = Some(end.map_or(*last, |end| end.min(*last)));
            }
            used.iter().for_each(|(account, used)| {
                add(sums.entry(*account).or_default(), *used);
            });
        }
        let limits = self.all_limits().into_iter().filter(|(account, ..)| after < Some(*account));
        let limits: BTreeMap<_, _> =
            limits.map(|(account, limits, since_ns)| (account, (limits, since_ns))).collect();
        limits.keys().for_each(|account| _ = sums.entry(*account).or_default());
        sums.retain(|account, used| {
            let is_known = *used != [0; 2] || limits.contains_key(account);
            is_known && end.is_none_or(|end| *account <= end)
        });
        let quota = |(account, used): (Account, Amounts)| {
            let (limits, since_ns) = limits.get(&account).copied().unwrap_or_default();
            quota_of(account, used, limits, since_ns)
        };
        Ok((sums.into_iter().map(quota).collect(), end))
    }

    /// Authority: ends trees whose directories have gone, and that nothing is counted to.
    fn end_gone_trees(&self, peers: &dyn Peers, quotas: &[Quota]) -> Result<()> {
        let is_empty_tree =
            |quota: &&Quota| quota.limits.directory != FileId::NONE && quota.usage.inodes == 0;
        for Quota { account, limits, .. } in quotas.iter().filter(is_empty_tree) {
            if self.is_gone(peers, limits.directory)? {
                self.set_limits(peers, *account, Limits::default())?;
            }
        }
        Ok(())
    }

    /// Returns whether a directory is gone, by the word of its home.
    fn is_gone(&self, peers: &dyn Peers, directory: FileId) -> Result<bool> {
        let home = self.layout.home(directory)?;
        let stat = Operation::Read(Moment::Now, Read::Inode(directory));
        match peers.ask(home, Sender::SERVER, &Request::Execute(stat)) {
            Ok(Response::Reply(Reply::Inode(inode))) => Ok(inode.nlink == 0),
            Err(Error::WrongServer { .. }) => Ok(true),
            Err(Error::Namespace(error)) if error.errno() == Errno::NOENT => Ok(true),
            Err(error) => Err(error),
            Ok(_) => Err(Error::Unfit),
        }
    }

    /// Authority: returns the trees, by number, with their directories.
    fn trees(&self) -> Vec<(u32, FileId)> {
        let tree = |(account, limits, _): (Account, Limits, Amounts)| match account {
            Account::Tree(project) => Some((project, limits.directory)),
            _ => None,
        };
        self.all_limits().into_iter().filter_map(tree).collect()
    }

    fn project_of(&self, directory: FileId) -> Option<u32> {
        let trees = self.trees().into_iter();
        trees.filter(|(_, top)| *top == directory).map(|(project, _)| project).next()
    }

    /// Authority: gives a directory a number of a tree, and the tree limits. The client marks the
    /// files.
    fn set_tree(&self, peers: &dyn Peers, directory: FileId, limits: Limits) -> Result<Account> {
        // Files left over from removed trees keep those numbers.
        let used = self.all_quotas(peers)?;
        let one = self.lock_settings();
        let project = match self.project_of(directory) {
            Some(project) => project,
            None => {
                let taken = used.iter().filter_map(|quota| match quota.account {
                    Account::Tree(project) => Some(project),
                    _ => None,
                });
                let last = taken.chain(self.trees().into_iter().map(|(project, _)| project));
                last.max().unwrap_or(0).checked_add(1).ok_or(full())?
            }
        };
        let account = Account::Tree(project);
        self.set_limits_held(peers, account, Limits { directory, ..limits }, &one)?;
        Ok(account)
    }

    /// Counts a file that is here to a tree, or to none. A directory's partitions all know it once
    /// this returns, so what is created in them from then on is counted, too.
    fn set_project(&self, peers: &dyn Peers, id: FileId, project: u32) -> Result<()> {
        if self.has_directory(id)? && self.layout.home(id)? == self.id {
            return self
                .change_half(peers, id, false, || self.tablet.set_project(id, project))
                .map(drop);
        }
        self.change_file(id, |tablet| tablet.set_project(id, project))
    }
}

fn add(sum: &mut Amounts, used: Amounts) {
    *sum = [0, 1].map(|kind| sum[kind].saturating_add(used[kind]));
}

fn quota_of(account: Account, used: Amounts, limits: Limits, since_ns: Amounts) -> Quota {
    let [bytes, inodes] = used.map(|used| u64::try_from(used).unwrap_or(0));
    let [bytes_since_ns, inodes_since_ns] = since_ns;
    Quota { account, usage: Usage { bytes, inodes, bytes_since_ns, inodes_since_ns }, limits }
}

fn full() -> Error {
    canopy_namespace::Error::from(Errno::NOSPC).into()
}
