//! Objects that nothing needs any more are removed, and no others.

use crate::change;
use crate::place::{CHUNK, Life, Place};
use canopy_cluster::contents::{Collected, collect_session, session_objects, sessions};
use canopy_cluster::{Process, ProcessSettings};
use canopy_namespace::operation::{Access, Change, ContentsPart, Moment, Operation, Read};
use canopy_namespace::{EntryName, Execute, FileContents, FileId, ROOT, Reply, system_clock};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

impl Place {
    fn collect(&self, session: u64) -> Collected {
        let (peers, operations) = (&*self.process, self.operations());
        collect_session(&self.environment, peers, &operations, session, &mut || ())
            .expect("collected")
    }

    fn sessions(&self) -> Vec<u64> {
        sessions(&*self.environment.storage).expect("sessions")
    }

    /// Returns the number of chunks that records of files name.
    fn named(&self, files: &[FileId]) -> usize {
        let client = self.client();
        let count = |id: &FileId| {
            let part = ContentsPart { id: *id, from: 0, count_max: 1000 };
            match client.execute(&Operation::Read(Moment::Now, Read::Contents(part))) {
                Ok(Reply::Contents(stored)) => stored.chunks.len(),
                other => panic!("{other:?}"),
            }
        };
        files.iter().map(count).sum()
    }
}

#[test]
fn what_nothing_needs_is_removed() {
    for seed in 0..12 {
        let mut random = StdRng::seed_from_u64(seed);
        let place = Place::new();
        let client = place.client();
        let names = ["a", "b", "c", "d"];
        let files = names.map(|name| client.create(name).id);
        let mut models = [const { Vec::new() }; 4];
        for round in 0..30 {
            let which = random.random_range(0..4);
            let (id, model) = (files[which], &mut models[which]);
            // Some clients die while they send. Their changes count if they were all sent.
            let life = Life::new(random.random_range(0..12), random.random());
            let mortal = place.mortal(&life);
            let user = if random.random() { &client } else { &mortal };
            user.0.open(id).expect("a file");
            let before = model.clone();
            let mut dies = false;
            if std::ptr::eq(user, &client) {
                change(&mut random, user, id, model);
            } else {
                let at = random.random_range(0..5 * CHUNK);
                let bytes = vec![round + 1; random.random_range(1..2 * CHUNK as usize)];
                user.write(id, at, &bytes).expect("it is in memory");
                model.resize(model.len().max(at as usize + bytes.len()), 0);
                model[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
                dies = true;
            }
            let is_closed = user.0.close(id).is_ok();
            assert!(is_closed || dies && life.has_ended());
            if dies && !is_closed {
                let left = place.client().whole(id);
                assert!(left == *model || left == before);
                *model = left;
            }
            if random.random_ratio(1, 4) {
                place.process.collect().expect("collected");
            }
        }
        let unlink = Change::Unlink(EntryName::new(ROOT, b"d"));
        client.execute(&Operation::Change(unlink)).expect("removed");
        client.0.end().expect("ended");
        // The file without a name goes first, with its objects.
        let unlinked = || client.0.open(files[3]).is_err();
        while !unlinked() {
            client.0.close(files[3]).expect("closed");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        place.process.collect().expect("collected");
        let left: u64 = place.sessions().into_iter().map(|one| place.collect(one).left).sum();
        for (id, model) in files.iter().zip(&models).take(3) {
            assert!(place.client().whole(*id) == *model, "seed {seed}");
        }
        let objects = place.objects("contents/chunk/").len();
        assert_eq!(objects, place.named(&files[..3]) + left as usize, "seed {seed}");
    }
}

/// A client whose session is ended by others goes on with another one.
#[test]
fn a_client_outlives_its_session() {
    let place = Place::new();
    let client = place.client();
    let id = client.create("file").id;
    client.0.open(id).expect("a file");
    client.write(id, 0, &[1; 9000]).expect("written");
    client.0.publish(id).expect("sent");
    client.write(id, 5000, &[2; 10]).expect("written");
    let [session] = place.sessions()[..] else { panic!() };
    assert_eq!(session_objects(&*place.environment.storage, session).expect("objects").0, 3);
    assert_eq!(place.collect(session), Collected { removed: 0, needed: 3, left: 0 });
    assert_eq!(place.sessions(), [0_u64; 0]);
    client.0.close(id).expect("closed");
    let [other] = place.sessions()[..] else { panic!() };
    assert_ne!(other, session);
    let mut expected = vec![1; 9000];
    expected[5000..5010].fill(2);
    assert!(place.client().whole(id) == expected);
    place.process.collect().expect("collected");
    assert_eq!(place.objects("contents/chunk/").len(), 3);
}

/// A client stops for a long time after it has made objects, and goes on once they were collected.
#[test]
fn objects_that_were_collected_are_not_named_later() {
    for does_last in [false, true] {
        let place = Place::new();
        let id = place.client().create("file").id;
        // It makes its session and two objects; the change of records is the step after them.
        let life = Life::new(3, does_last);
        let client = place.mortal(&life);
        client.0.open(id).expect("a file");
        client.write(id, 0, &[3; 5000]).expect("written");
        assert!(client.0.publish(id).is_err());
        let [session] = place.sessions()[..] else { panic!() };
        let collected = place.collect(session);
        let (removed, needed) = if does_last { (0, 2) } else { (2, 0) };
        assert_eq!(collected, Collected { removed, needed, left: 0 });
        life.revive();
        client.0.close(id).expect("closed");
        assert_eq!(place.client().whole(id), [3; 5000]);
        place.process.collect().expect("collected");
        assert_eq!(place.objects("contents/chunk/").len(), 2);
    }
}

/// Objects left by a dead client are removed by themselves; a living client notices nothing.
#[test]
fn abandoned_objects_are_removed_by_themselves() {
    let place = Place::new();
    let client = place.client();
    let id = client.create("file").id;
    client.0.open(id).expect("a file");
    client.write(id, 0, &[1; 9000]).expect("written");
    client.0.publish(id).expect("sent");
    let life = Life::new(3, false);
    let mortal = place.mortal(&life);
    mortal.0.open(id).expect("a file");
    mortal.write(id, 0, &[3; 5000]).expect("written");
    assert!(mortal.0.publish(id).is_err());
    assert_eq!((place.sessions().len(), place.objects("contents/chunk/").len()), (2, 5));
    place.process.sync().expect("synced");
    let abandoned = std::time::Duration::from_millis(200);
    let settings = ProcessSettings { abandoned, ..ProcessSettings::default() };
    let (environment, clock) = (&place.environment, system_clock());
    let process = Process::with_settings(environment, &clock, settings, None).expect("a process");
    process.open_all().expect("servers");
    process.look_after().expect("threads");
    let begin = std::time::Instant::now();
    while place.objects("contents/chunk/").len() > 3 || !place.sessions().is_empty() {
        assert!(begin.elapsed().as_secs() < 60, "{:?}", place.objects("contents/"));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(process.metrics().removed_objects.get(), 2);
    assert!(place.client_by(process).whole(id) == [1; 9000]);
}

#[test]
fn users_do_not_ask_about_objects() {
    let place = Place::new();
    let id = place.client().create("file").id;
    let user = canopy_model::Credentials::new(7, [8]);
    let (chunk, object) =
        (canopy_namespace::ChunkId::new(id, 0), canopy_namespace::ObjectId { epoch: 1, number: 1 });
    let asked = Operation::Access(Access::NeedsObject(chunk, object));
    let caller = canopy_namespace::Caller::User(&user);
    let refused = place.client().0.execute_for(caller, &asked).unwrap_err();
    assert_eq!(refused.errno(), rustix::io::Errno::PERM);
}
