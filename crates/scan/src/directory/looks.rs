//! Looks at a directory and all above it, after it was opened.

use super::*;
use canopy_model::Device;

/// Changes of the directories on the way to a listing since it was read.
#[derive(Clone, Debug)]
pub(crate) enum Narrowing {
    /// Those who are to see it must pass these, besides what makes its class; each with the owner
    /// of the directory that asks for it.
    ToThose(Arc<Vec<(Grant, u32)>>),
    /// It is no longer where it was, or not at all.
    Gone(Fault),
}

impl Narrowing {
    /// Returns the narrowing to root alone.
    pub(crate) fn to_root() -> Self {
        Narrowing::ToThose(Arc::new(vec![(Grant::nobody(), 0)]))
    }

    /// Returns the narrowing for readers who pass both.
    pub(crate) fn and(self, other: Option<Narrowing>) -> Self {
        match (self, other) {
            (Narrowing::Gone(fault), _) | (_, Some(Narrowing::Gone(fault))) => {
                Narrowing::Gone(fault)
            }
            (narrowing, None) => narrowing,
            (Narrowing::ToThose(grants), Some(Narrowing::ToThose(others))) => {
                let mut all = Vec::clone(&grants);
                all.extend(others.iter().cloned());
                all.sort_unstable();
                all.dedup();
                if all.len() > NARROWING_MAX {
                    return Narrowing::to_root();
                }
                Narrowing::ToThose(Arc::new(all))
            }
        }
    }
}

/// Most grants of a narrowing: where more directories have changed, root alone sees the listing.
const NARROWING_MAX: usize = 8;

/// How often a moment is looked for at once at which all of a path is as it is seen.
const TRIES: usize = 3;

/// How often directories that change all the time are looked at.
const TRIES_AT_ONCE: usize = 20;

/// The moment at which a thread begins to look again at the directories above its entries.
#[derive(Clone, Copy)]
pub(crate) struct Round {
    pub(crate) number: u64,
    /// Not later than looks of this round and all later ones.
    pub(crate) moment: Moment,
}

/// The state of a directory when it was looked at again.
#[derive(Debug)]
pub(super) struct Again {
    /// The round in which it and all above it were, 0 for never.
    round: u64,
    found: Found,
}

/// The state of the way to a directory.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) narrowing: Option<Narrowing>,
    /// When any directory on the way, or the directory itself, changed last.
    pub(crate) change: ChangeTime,
}

impl Default for Again {
    fn default() -> Self {
        Again { round: 0, found: Found { narrowing: None, change: ChangeTime::NONE } }
    }
}

/// A moment at which a directory was in its place, and all above it, with what differs from the
/// permissions that were noted.
pub(crate) struct Proof {
    pub(crate) moment: Moment,
    /// The directory's own, then.
    pub(crate) attributes: Attributes,
    pub(crate) narrowing: Option<Narrowing>,
}

impl Proof {
    /// Returns moment and attributes if everybody is let in who was when permissions were noted.
    pub(super) fn of_all(self) -> Option<(Moment, Attributes)> {
        self.narrowing.is_none().then_some((self.moment, self.attributes))
    }
}

/// One look at a directory.
struct Look {
    attributes: Attributes,
    /// When it changed last. The kernel has changed nothing from then until the look, neither the
    /// name nor the permissions.
    change: ChangeTime,
    /// Whether it has the name by which it was opened.
    is_named: bool,
    difference: Option<Difference>,
}

/// A difference between two looks at a directory.
enum Difference {
    /// Its permissions: the current audience.
    To(Vec<Grant>),
    /// The directory that it is in, or it was removed.
    Gone(Fault),
}

impl Directory {
    /// Returns the changes on the way to entries that were read in the directory before this round
    /// began. Looks again at it and at all directories above it that were not looked at since.
    pub(crate) fn narrowing(&self, round: Round, moves: &Moves) -> Found {
        let mut to_look_at = Vec::new();
        let mut found = Again::default().found;
        let mut next = Some(self);
        while let Some(directory) = next {
            let again = directory.again.lock().unwrap_or_else(PoisonError::into_inner);
            if again.round >= round.number {
                found = again.found.clone();
                break;
            }
            drop(again);
            to_look_at.push(directory);
            next = directory.above.as_deref();
        }
        for directory in to_look_at.into_iter().rev() {
            let look = directory.look();
            if let Some(Difference::Gone(fault)) = &look.difference
                && !matches!(found.narrowing, Some(Narrowing::Gone(_)))
                && !directory.gone.swap(true, Ordering::Relaxed)
                && *fault == Fault::Moved
            {
                moves.add(directory);
            }
            found.change = found.change.max(look.certain_change());
            found.narrowing = directory.narrowed_by(look.difference, found.narrowing);
            if found.narrowing.is_none() && round.moment.is_after(found.change) {
                directory.moment.fetch_max(round.moment.0, Ordering::AcqRel);
            }
            let mut again = directory.again.lock().unwrap_or_else(PoisonError::into_inner);
            if again.round < round.number {
                *again = Again { round: round.number, found: found.clone() };
            }
        }
        found
    }

    /// Looks for a moment, from now on, at which the directory and all above it were in their
    /// places with the permissions that are seen. `None` if they change all the time, or if the
    /// directory is elsewhere.
    pub(crate) fn prove(&self) -> Option<Proof> {
        let mut path: Vec<&Directory> =
            std::iter::successors(Some(self), |directory| directory.above.as_deref()).collect();
        path.reverse();
        (0..TRIES).find_map(|_| self.prove_at_once(&path))
    }

    fn prove_at_once(&self, path: &[&Directory]) -> Option<Proof> {
        let moment = self.handle.shared().clock.now();
        let mut looks: Vec<Look> = path.iter().map(|directory| directory.look()).collect();
        let is_settled = |look: &Look| moment.is_after(look.certain_change());
        let unsettled = (0..looks.len()).filter(|&at| !is_settled(&looks[at]));
        let unsettled: Vec<usize> = unsettled.collect();
        if !unsettled.is_empty() {
            // Those that change all the time are looked at once, and the others are the same then.
            for (&at, look) in unsettled.iter().zip(look_twice(path, &unsettled)?) {
                looks[at] = look;
            }
            for (at, look) in looks.iter_mut().enumerate() {
                if !unsettled.contains(&at) {
                    *look = path[at].look();
                    if !is_settled(look) {
                        return None;
                    }
                }
            }
        }
        let attributes = looks.last()?.attributes;
        match narrowing_on(path.iter().copied().zip(looks)) {
            Some(Narrowing::Gone(_)) => None,
            narrowing => Some(Proof { moment, attributes, narrowing }),
        }
    }

    /// Returns whether change times in it are those of other machines' clocks.
    pub(crate) fn has_clock_of_others(&self) -> bool {
        self.lag_ns > rules::TICK_NS
    }

    /// Looks at the directory and all above it. `None` if one is not in its place, or has a change
    /// time without fractions of a second, which changes within that second leave as it is.
    pub(crate) fn way(&self) -> Option<Way> {
        let mut looks = Vec::new();
        for directory in std::iter::successors(Some(self), |at| at.above.as_deref()) {
            let look = directory.look();
            let is_whole = look.attributes.ctime_ns % SECOND_NS == 0;
            let is_gone = matches!(look.difference, Some(Difference::Gone(_)));
            if !look.is_named || is_whole || is_gone {
                return None;
            }
            looks.push(look);
        }
        Some(Way(looks))
    }

    /// Looks once more. Returns the attributes and what the way narrows if nothing has changed since
    /// `before`: then all directories were as they are from a tick after that look until now, with
    /// the same names in them.
    pub(crate) fn way_since(&self, before: &Way) -> Option<(Attributes, Option<Narrowing>)> {
        let now = self.way()?;
        let is_same = before.0.iter().zip(&now.0).all(|(one, other)| one.place() == other.place());
        if !is_same {
            return None;
        }
        let attributes = now.0.first()?.attributes;
        let path = std::iter::successors(Some(self), |at| at.above.as_deref());
        let path: Vec<(&Directory, Look)> = path.zip(now.0).collect();
        Some((attributes, narrowing_on(path.into_iter().rev())))
    }

    /// Returns the narrowing of the way to the directory, given its difference.
    fn narrowed_by(
        &self,
        difference: Option<Difference>,
        narrowing: Option<Narrowing>,
    ) -> Option<Narrowing> {
        let own = match difference {
            None => return narrowing,
            Some(Difference::Gone(fault)) => Narrowing::Gone(fault),
            Some(Difference::To(grants)) => {
                let owner = self.noted.uid;
                let grants = grants.into_iter().map(|grant| (grant, owner));
                Narrowing::ToThose(Arc::new(grants.collect()))
            }
        };
        Some(match narrowing {
            // A directory above counts more: below it, all is gone.
            Some(gone @ Narrowing::Gone(_)) => gone,
            narrowing => own.and(narrowing),
        })
    }

    fn look(&self) -> Look {
        let mut look = Look {
            attributes: self.attributes,
            change: ChangeTime::ALWAYS,
            is_named: false,
            difference: None,
        };
        let fd = match self.fd() {
            Ok(fd) => fd,
            Err(errno) => {
                let fault = match errno {
                    Errno::STALE | Errno::NOENT | Errno::NOTDIR | Errno::LOOP => Fault::Moved,
                    errno => Fault::Failed(Step::List, errno),
                };
                look.difference = Some(Difference::Gone(fault));
                return look;
            }
        };
        let seen = self.see(&fd);
        let Ok((seen, is_named)) = seen else {
            look.difference = Some(Difference::To(vec![Grant::nobody()]));
            return look;
        };
        (look.attributes, look.is_named) = (seen.stat.attributes, is_named);
        look.change = self.change_of(&look.attributes);
        look.difference = if look.attributes.nlink == 0 {
            Some(Difference::Gone(Fault::Failed(Step::List, Errno::NOENT)))
        } else if self.above.as_ref().is_some_and(|above| !is_in(&*fd, above)) {
            Some(Difference::Gone(Fault::Moved))
        } else {
            let now = Noted::of(seen, self.noted.rules);
            let is_same = now.lets_in_the_same(&self.noted);
            (!is_same).then(|| Difference::To(now.permissions().to_list()))
        };
        look
    }

    /// Returns the state of the directory, and whether it has its name. If it is as it was at a
    /// moment when it was known to have the name, one call is enough. Otherwise the change time is
    /// read last: if it is old, name and ACL are of that time, too.
    fn see(&self, fd: &OwnedFd) -> Result<(Seen, bool), Errno> {
        let stat = stat_open(fd)?;
        let was_seen = self.moment().is_after(self.change_of(&stat.attributes))
            && stat.attributes.ctime_ns == self.attributes.ctime_ns;
        if was_seen {
            return Ok((Seen { acl: self.noted.acl.clone(), stat }, true));
        }
        let is_named = self.has_its_name();
        Ok((Seen::of(fd)?, is_named))
    }

    /// Returns whether its name in the directory above leads to it.
    fn has_its_name(&self) -> bool {
        let Some(above) = &self.above else { return true };
        let (Ok(fd), Some(name)) = (above.fd(), self.name_in_above()) else { return false };
        stat_at(&fd, &name).is_ok_and(|stat| self.is_inode(&stat))
    }
}

/// Looks at directories that change all the time. `None` if any changed meanwhile, so that the
/// name, ACL and mode may be of different moments, or if the kernel cannot distinguish several
/// changes.
fn look_twice(path: &[&Directory], unsettled: &[usize]) -> Option<Vec<Look>> {
    let is_exact =
        |directory: &Directory| directory.lag_ns == 0 && directory.handle.shared().clock.is_exact();
    if unsettled.len() > 1 && !unsettled.iter().all(|&at| is_exact(path[at])) {
        return None;
    }
    'tries: for _ in 0..TRIES_AT_ONCE {
        let looks: Vec<Look> = unsettled.iter().map(|&at| path[at].look()).collect();
        for (&at, look) in unsettled.iter().zip(&looks) {
            let again = stat_open(&*path[at].fd().ok()?).ok()?;
            if !look.is_named || place(&look.attributes) != place(&again.attributes) {
                continue 'tries;
            }
        }
        return Some(looks);
    }
    None
}

/// Returns the narrowing of a path, from its top on.
fn narrowing_on<'d>(path: impl Iterator<Item = (&'d Directory, Look)>) -> Option<Narrowing> {
    path.fold(None, |narrowing, (directory, look)| {
        directory.narrowed_by(look.difference, narrowing)
    })
}

/// Looks at a directory and then at each one above it.
pub(crate) struct Way(Vec<Look>);

/// Returns permissions and change time: every change of a directory alters one of them.
fn place(of: &Attributes) -> (u32, u32, u32, i64) {
    (of.mode, of.uid, of.gid, of.ctime_ns)
}

impl Look {
    fn place(&self) -> (u32, u32, u32, i64) {
        place(&self.attributes)
    }

    /// Returns when the directory changed last, or `ALWAYS` if it may have another name.
    fn certain_change(&self) -> ChangeTime {
        if self.is_named { self.change } else { ChangeTime::ALWAYS }
    }
}

/// Returns whether an open directory is in another one.
fn is_in(directory: impl AsFd, above: &Directory) -> bool {
    let flags = AtFlags::NO_AUTOMOUNT;
    rustix::fs::statx(directory, c"..", flags, StatxFlags::INO).is_ok_and(|stat| {
        let dev = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
        (Device(dev), stat.stx_ino) == (above.dev, above.attributes.ino)
    })
}
