//! The namespace whose quotas are shown and set: open, asked through its servers, or mounted and asked
//! through the kernel.

use crate::moment::Moment;
use crate::servers::{Access, Served, is_served};
use crate::{paths, place};
use anyhow::{Context, bail};
use canopy::commands::ns::Account as Arguments;
use canopy_mount::{QUOTA, QuotaReport, Wanted};
use canopy_namespace::operation::Moment as Tree;
use canopy_namespace::quota::{Account, Limits};
use canopy_namespace::{EntryName, Execute, FileId, Namespace, ROOT};
use canopy_text::{group_id, user_id};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::path::{Path, PathBuf};

pub enum QuotaTarget {
    Open(Box<Namespace>),
    Served(Box<Served>),
    Mounted(PathBuf),
}

/// The id that no user and no group has: to system calls it means "as it is".
const NOBODYS: u32 = u32::MAX;

/// An account, by name.
pub enum Named {
    Account(Account),
    Tree(FileId, PathBuf),
}

impl QuotaTarget {
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        if is_served(path)? {
            let served = Served::open(path, &Access::without_contents())?;
            return Ok(QuotaTarget::Served(Box::new(served)));
        }
        let path = place::asked(path)?;
        if place::control(&path, QUOTA)?.is_none() {
            return Ok(QuotaTarget::Open(Box::new(place::open(&path)?)));
        }
        if rustix::fs::stat(&path)?.st_ino != ROOT.0 {
            bail!("{}: name the directory that the namespace is mounted on", path.display());
        }
        Ok(QuotaTarget::Mounted(path))
    }

    /// Returns whom the arguments name.
    pub fn account(&self, arguments: &Arguments) -> anyhow::Result<Option<Named>> {
        if let Some(name) = &arguments.user {
            let uid = user_id(name).filter(|uid| *uid != NOBODYS);
            let uid = uid.with_context(|| format!("{name}: no such user"))?;
            return Ok(Some(Named::Account(Account::User(uid))));
        }
        if let Some(name) = &arguments.group {
            let gid = group_id(name).filter(|gid| *gid != NOBODYS);
            let gid = gid.with_context(|| format!("{name}: no such group"))?;
            return Ok(Some(Named::Account(Account::Group(gid))));
        }
        let Some(tree) = &arguments.tree else { return Ok(None) };
        // A link there may lead elsewhere.
        let path = Path::new("/").join(paths::show(&paths::names(tree)?));
        let found = self.find(&path);
        let (id, is_directory) = match tree.to_str().and_then(|text| text.parse().ok()) {
            Some(number) if found.is_err() => {
                return Ok(Some(Named::Account(Account::Tree(number))));
            }
            _ => found?,
        };
        if !is_directory {
            bail!("{}: not a directory", path.display());
        }
        Ok(Some(Named::Tree(id, path)))
    }

    /// Returns which file lies at a path, and whether it is a directory.
    fn find(&self, path: &Path) -> anyhow::Result<(FileId, bool)> {
        match self {
            QuotaTarget::Open(namespace) => {
                let inode = paths::existing(&Moment::now(namespace), path)?;
                Ok((inode.id, inode.is_directory()))
            }
            QuotaTarget::Served(served) => {
                let namespace: &dyn Execute = &*served.namespace;
                let mut inode = namespace.inode(Tree::Now, ROOT)?;
                for name in paths::names(path)? {
                    let looked = namespace.lookup(Tree::Now, EntryName::new(inode.id, name));
                    inode = looked.with_context(|| path.display().to_string())?;
                }
                Ok((inode.id, inode.is_directory()))
            }
            QuotaTarget::Mounted(on) => {
                let stat = rustix::fs::lstat(below(on, path));
                let stat = stat.with_context(|| path.display().to_string())?;
                let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
                Ok((FileId(stat.st_ino), kind.is_dir()))
            }
        }
    }

    /// Returns usage and limits of one account, or of all that the caller may see.
    pub fn quotas(&self, one: Option<&Named>) -> anyhow::Result<Vec<QuotaReport>> {
        let mut all = match self {
            QuotaTarget::Open(namespace) => {
                let quotas = namespace.quotas()?.into_iter();
                quotas
                    .map(|quota| Ok(QuotaReport::new(namespace.as_ref(), quota)?))
                    .collect::<anyhow::Result<_>>()?
            }
            QuotaTarget::Served(served) => {
                let namespace: &dyn Execute = &*served.namespace;
                let quotas = namespace.quotas()?.into_iter();
                quotas
                    .map(|quota| Ok(QuotaReport::new(namespace, quota)?))
                    .collect::<anyhow::Result<_>>()?
            }
            QuotaTarget::Mounted(on) => all_of(on)?,
        };
        match one {
            Some(Named::Account(account)) => all.retain(|told| told.quota.account == *account),
            Some(Named::Tree(id, _)) => all.retain(|told| told.quota.limits.directory == *id),
            None => {}
        }
        Ok(all)
    }

    pub fn set(&self, of: &Named, limits: Limits) -> anyhow::Result<()> {
        self.want(of, &Wanted { account: None, limits, removes: false })
    }

    pub fn remove(&self, of: &Named) -> anyhow::Result<()> {
        self.want(of, &Wanted { account: None, limits: Limits::default(), removes: true })
    }

    fn want(&self, of: &Named, wanted: &Wanted) -> anyhow::Result<()> {
        let (wanted, id, path) = match of {
            Named::Account(account) => {
                (Wanted { account: Some(*account), ..wanted.clone() }, ROOT, Path::new("/"))
            }
            Named::Tree(id, path) => (wanted.clone(), *id, path.as_path()),
        };
        match self {
            QuotaTarget::Open(namespace) => {
                wanted.set(namespace.as_ref(), id)?;
                Ok(namespace.sync()?)
            }
            QuotaTarget::Served(served) => Ok(wanted.set(&*served.namespace, id)?),
            QuotaTarget::Mounted(on) => {
                let value = serde_json::to_string(&wanted)?;
                let flags = XattrFlags::empty();
                match rustix::fs::setxattr(below(on, path), QUOTA, value.as_bytes(), flags) {
                    Err(Errno::PERM | Errno::ACCESS) => {
                        bail!("only root and the owner of the namespace may set quotas")
                    }
                    set => set.context("cannot set quotas"),
                }
            }
        }
    }
}

/// Returns where a path of the namespace is found on its mount.
fn below(on: &Path, path: &Path) -> PathBuf {
    on.join(path.strip_prefix("/").unwrap_or(path))
}

/// Asks a mounted namespace for all quotas, or for the user's own if it does not show all.
fn all_of(on: &Path) -> anyhow::Result<Vec<QuotaReport>> {
    let mut all = Vec::new();
    for kind in ["user", "group", "tree"] {
        let mut from = 0;
        loop {
            let some = match place::ask(on, &format!("{QUOTA}.{kind}.{from}")) {
                Err(Errno::PERM) => return Ok(parse(&place::ask(on, QUOTA)?.unwrap_or_default())?),
                some => parse(&some?.unwrap_or_default())?,
            };
            let Some(last) = some.last() else { break };
            let (Account::User(id) | Account::Group(id) | Account::Tree(id)) = last.quota.account;
            all.extend(some);
            match id.checked_add(1) {
                Some(next) => from = next,
                None => break,
            }
        }
    }
    Ok(all)
}

fn parse(lines: &str) -> serde_json::Result<Vec<QuotaReport>> {
    lines.lines().map(serde_json::from_str).collect()
}
