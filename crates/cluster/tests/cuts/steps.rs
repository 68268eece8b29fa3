//! Changes and deaths at each step of a cut.

use crate::history::History;
use crate::net::{At, Hook, Net, create_snapshot, snapshots};
use canopy_cluster::CutMessage;
use canopy_namespace::operation::Moment;
use canopy_partition::ServerId;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Messages of a cut of three servers: six rounds.
const MESSAGES: usize = 18;

const CLIENTS: usize = 3;

/// Something that happens at a message.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Clients change names. They go on when they can.
    Changes,
    /// The server of the message is replaced, and then clients change names.
    Replaced(At),
    /// Server 0, which makes the cut, is replaced.
    MakerReplaced(At),
    /// The message is lost, or its reply.
    Lost(At),
}

const EVENTS: [Event; 7] = [
    Event::Changes,
    Event::Replaced(At::Before),
    Event::Replaced(At::After),
    Event::MakerReplaced(At::Before),
    Event::MakerReplaced(At::After),
    Event::Lost(At::Before),
    Event::Lost(At::After),
];

struct Stage {
    net: Arc<Net>,
    history: Arc<History>,
    clients: Mutex<Vec<JoinHandle<()>>>,
    seed: u64,
}

impl Stage {
    /// Has each client make some changes, and waits for a moment.
    fn change(&self) {
        let begun = Instant::now();
        let spawned = (0..CLIENTS).map(|number| {
            let (net, history) = (self.net.clone(), self.history.clone());
            let seed = self.seed * 10 + number as u64;
            thread::spawn(move || {
                let client = net.client();
                let mut random = StdRng::seed_from_u64(seed);
                for _ in 0..4 {
                    history.step(number, &client, &mut random);
                }
            })
        });
        let spawned = Vec::from_iter(spawned);
        // They may have to wait for the end of the pause.
        while !spawned.iter().all(JoinHandle::is_finished)
            && begun.elapsed() < Duration::from_millis(15)
        {
            thread::sleep(Duration::from_millis(1));
        }
        self.clients.lock().extend(spawned);
    }

    fn join(&self) {
        let clients = std::mem::take(&mut *self.clients.lock());
        clients.into_iter().for_each(|client| client.join().unwrap());
    }
}

/// Makes a snapshot, while something happens at one of its messages.
fn run(event: Event, message: usize) -> bool {
    let net = Net::new(1 << 20);
    let history = Arc::new(History::new(&net, CLIENTS));
    let seed = message as u64;
    let stage =
        Stage { net: net.clone(), history: history.clone(), clients: Mutex::default(), seed };
    let stage = Arc::new(stage);
    stage.change();
    stage.join();
    let count = AtomicUsize::new(0);
    let of_hook = stage.clone();
    let at = match event {
        Event::Changes => At::Before,
        Event::Replaced(at) | Event::MakerReplaced(at) | Event::Lost(at) => at,
    };
    let hook: Hook = Arc::new(move |net, server, step, passing| {
        let is_it = passing == at
            && step != CutMessage::Abandon
            && count.fetch_add(1, Ordering::SeqCst) == message;
        if !is_it {
            return true;
        }
        match event {
            Event::Changes => {}
            Event::Replaced(_) => net.restart(server),
            Event::MakerReplaced(_) => net.restart(ServerId(0)),
            Event::Lost(_) => return false,
        }
        of_hook.change();
        true
    });
    net.set_hook(Some(hook));
    let before = history.now();
    let made = create_snapshot(&net.client_for(Duration::ZERO), "one");
    let after = history.now();
    net.set_hook(None);
    stage.join();
    net.settle();
    let found = snapshots(&net.client());
    assert!(made.is_err() || found.len() == 1, "{event:?} {message}: {found:?}");
    for number in found.values() {
        history.check(&net.client(), Moment::Snapshot(*number), (before, after));
    }
    // Another attempt succeeds, whatever is left of the first one.
    let before = history.now();
    create_snapshot(&net.client(), "other").unwrap();
    let after = history.now();
    let number = snapshots(&net.client())["other"];
    history.check(&net.client(), Moment::Snapshot(number), (before, after));
    made.is_ok()
}

#[test]
fn whatever_happens_at_a_message_a_snapshot_is_of_one_moment() {
    let made = Mutex::new(0);
    let all = EVENTS.iter().flat_map(|event| (0..MESSAGES).map(move |at| (*event, at)));
    let all = Mutex::new(all);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let next = all.lock().next();
                    let Some((event, at)) = next else { return };
                    let is_made = run(event, at);
                    *made.lock() += usize::from(is_made);
                }
            });
        }
    });
    let made = made.into_inner();
    assert!(made > MESSAGES, "{made} were made");
}

/// The pause is short where nothing runs.
#[test]
fn a_pause_is_short() {
    let net = Net::new(1 << 20);
    let history = History::new(&net, 1);
    let client = net.client();
    let mut random = StdRng::seed_from_u64(1);
    let mut pauses = Vec::new();
    for _ in 0..5 {
        (0..20).for_each(|_| history.step(0, &client, &mut random));
        let cut = client.make_cut(Duration::from_secs(60)).unwrap();
        pauses.push(cut.pause_us);
        assert_eq!(cut.tables.checkpoints.len(), 3);
        let moment = Moment::Snapshot(cut.tables.number);
        let now = history.now();
        history.check(&client, moment, (0, now));
        client.renew_cut(cut.tables.number, Duration::from_secs(60)).unwrap();
        assert!(client.release_cut(cut.tables.number).unwrap());
        assert!(!client.release_cut(cut.tables.number).unwrap());
    }
    println!("pauses of three servers, in microseconds: {pauses:?}");
    assert!(pauses.iter().min() < Some(&100_000), "{pauses:?}");
}
