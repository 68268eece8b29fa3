//! Server 0 makes, renews and deletes snapshots and cuts.

use super::{CUTS_MAX, CutMade, CutRequest, DELETIONS, Record, Stage};
use crate::cuts::coordinator::{Cut, each_at_once};
use crate::error::{Error, Result};
use crate::message::{Request, Response, Sender};
use crate::process::Process;
use crate::server::Server;
use canopy_model::Credentials;
use canopy_namespace::operation::{Access, Operation, SnapshotsRequest};
use canopy_namespace::{FileId, Present, Reply, SNAPSHOTS_MAX, check_snapshot_name};
use canopy_partition::ServerId;
use canopy_store::{ErrorKind, TableId, keep, release, renew};
use rustix::io::Errno;
use std::sync::Arc;

/// The checkpoints of a snapshot that was not finished go after this time.
const CREATION_MS: u64 = 60 * 60_000;

/// Limits of the time for which a cut without a name is kept.
const KEPT_MS_MIN: u64 = 1000;
const KEPT_MS_MAX: u64 = 24 * 60 * 60_000;

impl Process {
    /// Answers a request that concerns all servers: about cuts and snapshots, or the present
    /// permissions of files in them. None if it is another request.
    pub(crate) fn answer_on_all(
        &self,
        server: ServerId,
        sender: Sender<'_>,
        request: &Request<'_>,
    ) -> Option<Result<Response>> {
        let maker = || match server {
            ServerId(0) => self.server(server),
            _ => Err(Error::Unfit),
        };
        match request {
            Request::Cut(request) => {
                Some(maker().and_then(|maker| self.answer_on_cut(&maker, sender, *request)))
            }
            Request::Past(number, request) => {
                Some(self.answer_past(server, sender, *number, request))
            }
            Request::Execute(Operation::Snapshots(request)) => {
                Some(maker().and_then(|maker| self.answer_on_snapshots(&maker, sender, request)))
            }
            Request::Execute(Operation::Access(Access::IsShown(_, id, wanted, who))) => {
                let shown = check_identity(sender, who).and_then(|()| {
                    Ok(Present::new(&self.client().tree(), who).lets(*id, *wanted)?)
                });
                Some(shown.map(|shown| Response::Reply(Reply::Truth(shown))))
            }
            _ => None,
        }
    }

    /// Answers a request about cuts without a name.
    fn answer_on_cut(
        &self,
        maker: &Arc<Server>,
        sender: Sender<'_>,
        request: CutRequest,
    ) -> Result<Response> {
        check_root(sender)?;
        match request {
            CutRequest::Make(keep_ms) => {
                self.make_cut(maker, sender, keep_ms).map(Response::CutMade)
            }
            CutRequest::Renew(number, keep_ms) => {
                self.renew_cut(maker, number, keep_ms).map(|()| Response::Done(true))
            }
            CutRequest::Release(number) => {
                let _one = maker.snapshots.one.lock();
                let is_cut = |record: &Record| matches!(record.stage, Stage::Kept { .. });
                let has = maker.snapshots.all.lock().get(&number).is_some_and(is_cut);
                if has {
                    self.end_snapshot(maker, number)?;
                }
                Ok(Response::Done(has))
            }
        }
    }

    /// Answers a request about snapshots.
    fn answer_on_snapshots(
        &self,
        maker: &Arc<Server>,
        sender: Sender<'_>,
        request: &SnapshotsRequest<'_>,
    ) -> Result<Response> {
        let reply = match request {
            SnapshotsRequest::Has(number) => Reply::Truth(self.has_snapshot(maker, *number)),
            SnapshotsRequest::Enter(name, directory, who) => {
                check_identity(sender, who)?;
                self.enter_snapshot(maker, name, *directory, who)?
            }
            SnapshotsRequest::All => {
                check_root(sender)?;
                let all = maker.snapshots.all.lock();
                let whole = all.values().filter(|record| record.stage == Stage::Whole);
                Reply::Snapshots(whole.map(Record::info).collect())
            }
            SnapshotsRequest::Described => {
                check_root(sender)?;
                Reply::Text(described(maker))
            }
            SnapshotsRequest::Create(name) => {
                check_root(sender)?;
                Reply::Snapshots(vec![self.create_snapshot(maker, sender, name)?.info()])
            }
            SnapshotsRequest::Delete(name) => {
                check_root(sender)?;
                self.delete_snapshot(maker, sender, name)?;
                Reply::Done
            }
        };
        Ok(Response::Reply(reply))
    }

    /// Makes a cut without a name.
    fn make_cut(&self, maker: &Arc<Server>, sender: Sender<'_>, keep_ms: u64) -> Result<CutMade> {
        let _one = maker.snapshots.one.lock();
        if maker.snapshots.count(|stage| matches!(stage, Stage::Kept { .. })) >= CUTS_MAX {
            return Err(posix(Errno::NOSPC));
        }
        let keep_ms = keep_ms.clamp(KEPT_MS_MIN, KEPT_MS_MAX);
        let until_ms = self.environment().clock.now_ms().saturating_add(keep_ms);
        let _under_way = maker.snapshots.begin();
        let cut = self.cut(maker, keep_ms)?;
        let stage = Stage::Kept { until_ms };
        let (number, record) = add(maker, sender, stage, String::new(), &cut)?;
        Ok(CutMade {
            tables: record.tables(number),
            pause_us: u64::try_from(cut.pause.as_micros()).unwrap_or(u64::MAX),
        })
    }

    fn renew_cut(&self, maker: &Arc<Server>, number: u64, keep_ms: u64) -> Result<()> {
        let _one = maker.snapshots.one.lock();
        let keep_ms = keep_ms.clamp(KEPT_MS_MIN, KEPT_MS_MAX);
        let found = maker.snapshots.all.lock().get(&number).cloned();
        let Some(record @ Record { stage: Stage::Kept { .. }, .. }) = found else {
            return Err(posix(Errno::STALE));
        };
        let until_ms = self.environment().clock.now_ms().saturating_add(keep_ms);
        let environment = self.environment();
        self.of_tables(&record, |table, checkpoint| {
            renew(environment, table, checkpoint, keep_ms).map_err(|error| match error.kind() {
                ErrorKind::NotFound => posix(Errno::STALE),
                _ => error.into(),
            })
        })?;
        put(maker, number, &Record { stage: Stage::Kept { until_ms }, ..record })
    }

    fn create_snapshot(
        &self,
        maker: &Arc<Server>,
        sender: Sender<'_>,
        name: &str,
    ) -> Result<Record> {
        check_snapshot_name(name)?;
        let _one = maker.snapshots.one.lock();
        if let Some((_, record)) = maker.snapshots.named(name) {
            // The reply to the same request may have been lost.
            let is_same = sender.number != 0 && record.maker == request_of(sender);
            return if is_same { Ok(record) } else { Err(posix(Errno::EXIST)) };
        }
        if maker.snapshots.count(|stage| !matches!(stage, Stage::Kept { .. })) >= SNAPSHOTS_MAX {
            return Err(posix(Errno::NOSPC));
        }
        let (number, record) = {
            let _under_way = maker.snapshots.begin();
            let cut = self.cut(maker, CREATION_MS)?;
            add(maker, sender, Stage::Making, name.into(), &cut)?
        };
        let environment = self.environment();
        let kept =
            self.of_tables(&record, |table, checkpoint| Ok(keep(environment, table, checkpoint)?));
        let record = Record { stage: Stage::Whole, ..record };
        let made = kept.and_then(|()| put(maker, number, &record));
        if let Err(error) = made {
            // The rest is ended later.
            let _ = self.end_snapshot(maker, number);
            return Err(error);
        }
        Ok(record)
    }

    fn delete_snapshot(&self, maker: &Arc<Server>, sender: Sender<'_>, name: &str) -> Result<()> {
        let _one = maker.snapshots.one.lock();
        let request = request_of(sender);
        let Some((number, _)) = maker.snapshots.named(name) else {
            let was_done = sender.number != 0 && maker.snapshots.deleted.lock().contains(&request);
            return if was_done { Ok(()) } else { Err(posix(Errno::NOENT)) };
        };
        let ended = self.end_snapshot(maker, number);
        // From its first step on, it is gone.
        let mut deleted = maker.snapshots.deleted.lock();
        deleted.push_back(request);
        if deleted.len() > DELETIONS {
            deleted.pop_front();
        }
        ended
    }

    /// Ends a snapshot or a cut: nobody can read it once its record says so. The caller has `one`.
    fn end_snapshot(&self, maker: &Arc<Server>, number: u64) -> Result<()> {
        let found = maker.snapshots.all.lock().get(&number).cloned();
        let Some(record) = found else { return Ok(()) };
        let record = Record { stage: Stage::Ending, ..record };
        put(maker, number, &record)?;
        let environment = self.environment();
        self.of_tables(&record, |table, checkpoint| Ok(release(environment, table, checkpoint)?))?;
        maker.tablet.put_snapshot_record(number, None)?;
        maker.snapshots.all.lock().remove(&number);
        Ok(())
    }

    /// Ends what a crash has left, and cuts whose time is over. While another one is being made, that
    /// has to wait.
    pub(crate) fn end_unfinished_snapshots(&self, maker: &Arc<Server>) -> Result<()> {
        let Some(_one) = maker.snapshots.one.try_lock() else { return Ok(()) };
        let now_ms = self.environment().clock.now_ms();
        let unfinished = {
            let all = maker.snapshots.all.lock();
            let is_over = |record: &Record| match record.stage {
                Stage::Kept { until_ms } => until_ms <= now_ms,
                Stage::Making | Stage::Ending => true,
                Stage::Whole => false,
            };
            Vec::from_iter(all.iter().filter(|(_, one)| is_over(one)).map(|(number, _)| *number))
        };
        unfinished.into_iter().try_for_each(|number| self.end_snapshot(maker, number))
    }

    /// Does something with the checkpoint of each table.
    fn of_tables(
        &self,
        record: &Record,
        work: impl Fn(TableId, u64) -> Result<()> + Sync,
    ) -> Result<()> {
        let tables = self.layout().tables().into_iter().zip(record.checkpoints.iter().copied());
        let tables = Vec::from_iter(tables);
        each_at_once(&tables, true, |(table, checkpoint)| work(*table, *checkpoint)).map(drop)
    }

    fn has_snapshot(&self, maker: &Server, number: u64) -> bool {
        let all = maker.snapshots.all.lock();
        all.get(&number).is_some_and(Record::can_be_read)
    }

    /// Returns a directory as a snapshot has it, with the snapshot's number, for a user who could get
    /// there then and can now.
    fn enter_snapshot(
        &self,
        maker: &Server,
        name: &[u8],
        directory: FileId,
        who: &Credentials,
    ) -> Result<Reply> {
        let named = str::from_utf8(name).ok().and_then(|name| maker.snapshots.named(name));
        let (number, _) = named.ok_or_else(|| posix(Errno::NOENT))?;
        let client = self.client();
        let past = client.past(number)?;
        let inode = past.tree().inode_of(directory)?;
        let could = past.tree().lets_in(directory, who)?;
        let tree = client.tree();
        match could && Present::new(&tree, who).reaches(directory)? {
            true => Ok(Reply::Entered(number, inode)),
            false => Err(posix(Errno::ACCESS)),
        }
    }
}

/// Records a cut that was made, for good.
fn add(
    maker: &Server,
    sender: Sender<'_>,
    stage: Stage,
    name: String,
    cut: &Cut,
) -> Result<(u64, Record)> {
    let (created_ns, checkpoints) = (cut.at_ns, cut.checkpoints.clone());
    let number = *checkpoints.first().ok_or(Error::Unfit)?;
    let record = Record { stage, name, created_ns, checkpoints, maker: request_of(sender) };
    put(maker, number, &record)?;
    Ok((number, record))
}

fn put(maker: &Server, number: u64, record: &Record) -> Result<()> {
    let value = serde_json::to_vec(record);
    let value = value.map_err(|error| canopy_namespace::Error::Invalid(error.to_string()))?;
    maker.tablet.put_snapshot_record(number, Some(&value))?;
    maker.snapshots.all.lock().insert(number, record.clone());
    Ok(())
}

/// Returns all snapshots as lines of JSON. Chunks never change, so none takes space of its own.
fn described(maker: &Server) -> String {
    let all = maker.snapshots.all.lock();
    let whole = all.values().filter(|record| record.stage == Stage::Whole);
    let lines = whole.map(|record| {
        let line = serde_json::json!({
            "name": record.name, "created_ns": record.created_ns, "files": null, "bytes": null,
            "held_bytes": 0,
        });
        format!("{line}\n")
    });
    lines.collect()
}

fn request_of(sender: Sender<'_>) -> (u64, u64) {
    (sender.session.0, sender.number)
}

/// Fails with `PERM` unless the sender is root, or is trusted.
fn check_root(sender: Sender<'_>) -> Result<()> {
    match sender.caller.user() {
        Some(who) if !who.is_root() => Err(posix(Errno::PERM)),
        _ => Ok(()),
    }
}

/// Fails with `PERM` unless the sender is this user, or root, or is trusted.
fn check_identity(sender: Sender<'_>, who: &Credentials) -> Result<()> {
    match sender.caller.user() {
        Some(user) if !user.is_root() && user != who => Err(posix(Errno::PERM)),
        _ => Ok(()),
    }
}

pub(super) fn posix(errno: Errno) -> Error {
    canopy_namespace::Error::from(errno).into()
}
