use super::*;

const LEASE: Duration = Duration::from_secs(10);

/// A storage that does what it is asked at once, and members that look at it.
struct Stage {
    now: Duration,
    maps: Vec<ClusterMap>,
    renewals: Vec<Renewal>,
    ids: u64,
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Stage {
    fn new() -> Self {
        Stage { now: Duration::ZERO, maps: Vec::new(), renewals: Vec::new(), ids: 100 }
    }

    fn member(&self, id: u64, address: &str) -> Member {
        Member::new(ProcessId(id), address, 4, LEASE, self.now)
    }

    fn renew(&mut self, member: &mut Member) {
        let renewal = member.renew(self.now);
        self.renewals.push(renewal);
        member.renewed_by(renewal, self.now, true);
    }

    fn look(&mut self, member: &mut Member) {
        self.ids += 1;
        let (map, fresh) = (self.maps.last().cloned(), ProcessId(self.ids));
        let renewals = self.renewals.clone();
        member.look(Look { time: (self.now, self.now), map, renewals, fresh });
    }

    /// Carries out the next actions of a member, and returns the servers that start and stop.
    fn act(&mut self, member: &mut Member) -> (Vec<u32>, Vec<u32>) {
        let (mut starts, mut stops) = (Vec::new(), Vec::new());
        for action in member.decide(self.now) {
            match action {
                Action::Commit(map) => {
                    if map.version == self.maps.len() as u64 + 1 {
                        self.maps.push(map);
                    }
                }
                Action::Start(server) => {
                    starts.push(server.0);
                    member.started(server, true, self.now);
                }
                Action::Stop(server) => {
                    stops.push(server.0);
                    member.stopped(server, self.now);
                }
                Action::Remove(_) => {}
            }
        }
        (starts, stops)
    }

    /// Lets a second pass, in which all members renew, look and act.
    fn tick(&mut self, members: &mut [&mut Member]) {
        self.now += seconds(1);
        for member in members {
            self.renew(member);
            self.look(member);
            self.act(member);
        }
    }

    /// Returns two members that run two servers each.
    fn pair() -> (Self, Member, Member) {
        let mut stage = Stage::new();
        let (mut one, mut other) = (stage.member(1, "one"), stage.member(2, "other"));
        for _ in 0..20 {
            stage.tick(&mut [&mut one, &mut other]);
        }
        assert!(one.is_carried_out() && other.is_carried_out());
        assert_eq!(one.map().servers_of(one.me()).count(), 2);
        (stage, one, other)
    }
}

#[test]
fn a_process_whose_own_lease_ended_removes_nobody() {
    let (mut stage, mut one, _) = Stage::pair();
    let before = stage.maps.len();
    for _ in 0..30 {
        stage.now += seconds(1);
        stage.look(&mut one);
        stage.act(&mut one);
    }
    assert_eq!(stage.maps.len(), before, "it does not renew its own lease");
    for _ in 0..2 {
        stage.tick(&mut [&mut one]);
    }
    assert_eq!(stage.maps.len(), before + 1);
    assert_eq!(one.map().processes.len(), 1);
}

#[test]
fn nobody_is_removed_when_storage_answers_again() {
    let (mut stage, mut one, mut other) = Stage::pair();
    let before = stage.maps.len();
    stage.now += seconds(600);
    // The first look comes before the other process could renew.
    stage.renew(&mut one);
    stage.look(&mut one);
    stage.act(&mut one);
    for _ in 0..20 {
        stage.tick(&mut [&mut one, &mut other]);
    }
    assert_eq!(stage.maps.len(), before);
}

#[test]
fn a_process_answers_only_while_no_other_one_may() {
    let (mut stage, mut one, mut other) = Stage::pair();
    let server = one.map().servers_of(one.me()).next().unwrap();
    assert!(one.may_answer(server, stage.now + seconds(9)));
    assert!(!one.may_answer(server, stage.now + seconds(10)));
    assert!(!other.may_answer(server, stage.now), "it runs elsewhere");
    // Renewals alone are not enough: it has to see the map.
    let last = stage.now;
    stage.now += seconds(10);
    stage.renew(&mut one);
    assert!(!one.may_answer(server, stage.now));
    // The other one takes over only later, however it looks.
    let mut stage = Stage { now: last, ..stage };
    while other.map().processes.len() == 2 {
        stage.tick(&mut [&mut other]);
    }
    assert!(stage.now >= last + LEASE);
}

#[test]
fn a_planned_move_waits_until_the_server_has_stopped() {
    let (mut stage, mut one, mut other) = Stage::pair();
    other.depart(Departure::Drain, stage.now);
    let moved = Vec::from_iter(other.map().servers_of(other.me()));
    stage.look(&mut other);
    stage.act(&mut other);
    stage.now += seconds(1);
    stage.renew(&mut one);
    stage.look(&mut one);
    assert_eq!(stage.act(&mut one), (vec![], vec![]), "it waits");
    assert_eq!(one.next_look(), stage.now + LEASE / 50, "and looks often");
    stage.look(&mut other);
    assert_eq!(stage.act(&mut other).1, [0; 0], "the other one has not seen for how long it waits");
    assert!(other.may_answer(moved[0], stage.now));
    stage.now = other.next_action();
    while stage.act(&mut other).1.is_empty() {
        stage.look(&mut other);
        stage.now = other.next_action();
    }
    stage.act(&mut other);
    assert!(!other.may_answer(moved[0], stage.now));
    assert_eq!(other.next_renewal(stage.now), Some(stage.now), "it reports at once");
    stage.renew(&mut other);
    stage.look(&mut one);
    assert_eq!(stage.act(&mut one).0.len(), 2);
}

#[test]
fn a_server_is_not_waited_for_longer_than_a_lease() {
    let (mut stage, mut one, mut other) = Stage::pair();
    other.depart(Departure::Drain, stage.now);
    stage.look(&mut other);
    stage.act(&mut other);
    let begin = stage.now;
    let mut started = 0;
    while started == 0 {
        stage.now += seconds(1);
        // The other one lives, but does not stop its servers.
        stage.renew(&mut other);
        stage.renew(&mut one);
        stage.look(&mut one);
        started = stage.act(&mut one).0.len();
    }
    let waited = stage.now - begin;
    assert!(waited > LEASE && waited < LEASE * 3 / 2, "{waited:?}");
}

#[test]
fn a_process_that_is_removed_again_and_again_waits_longer_each_time() {
    let (mut stage, mut one, mut other) = Stage::pair();
    let mut waits = Vec::new();
    for _ in 0..4 {
        let id = other.me();
        while other.me() == id {
            stage.tick(&mut [&mut one]);
            stage.look(&mut other);
            // Its renewals do not reach storage.
            let _ = other.renew(stage.now);
        }
        stage.act(&mut other);
        let removed = stage.now;
        while !other.is_inside() {
            stage.tick(&mut [&mut one, &mut other]);
        }
        waits.push((stage.now - removed).as_secs());
    }
    assert!(waits.windows(2).all(|pair| pair[1] >= pair[0] * 3 / 2), "{waits:?}");
    assert!(other.is_inside() && one.is_inside());
}

#[test]
fn a_process_that_cannot_look_lets_its_lease_end() {
    let (mut stage, one, _) = Stage::pair();
    assert!(one.next_renewal(stage.now).is_some());
    stage.now += LEASE * 3;
    assert_eq!(one.next_renewal(stage.now), None);
}

#[test]
fn a_server_that_fails_to_start_is_tried_again_with_growing_pauses() {
    let (mut stage, mut one, _) = Stage::pair();
    let server = one.map().servers_of(one.me()).next().unwrap();
    one.lost(server, stage.now);
    assert_eq!(stage.act(&mut one).1, [server.0]);
    stage.look(&mut one);
    assert_eq!(stage.act(&mut one).0, [0; 0], "the look must begin later");
    let mut tries = Vec::new();
    for _ in 0..40 {
        stage.now += seconds(1);
        stage.renew(&mut one);
        stage.look(&mut one);
        for action in one.decide(stage.now) {
            if action == Action::Start(server) {
                tries.push(stage.now.as_secs());
                one.started(server, false, stage.now);
            }
        }
    }
    let pauses = Vec::from_iter(tries.windows(2).map(|pair| pair[1] - pair[0]));
    assert!(pauses.len() >= 3 && pauses.is_sorted() && pauses.iter().all(|one| *one <= 11));
}

#[test]
fn a_process_with_another_lease_stays_out_while_others_live() {
    for lease in [seconds(2), seconds(50)] {
        let (mut stage, mut one, mut other) = Stage::pair();
        let before = stage.maps.len();
        let mut third = Member::new(ProcessId(3), "third", 4, lease, stage.now);
        stage.tick(&mut [&mut one, &mut other, &mut third]);
        assert_eq!(third.end(), None);
        stage.tick(&mut [&mut one, &mut other, &mut third]);
        stage.tick(&mut [&mut one, &mut other, &mut third]);
        assert!(matches!(third.end(), Some(End::OtherTerms(_))), "{lease:?}");
        assert_eq!(stage.maps.len(), before);
    }
}

#[test]
fn a_process_joins_others_only_if_all_have_certificates_or_none() {
    let (mut stage, mut one, mut other) = Stage::pair();
    let before = stage.maps.len();
    let terms = Terms { lease: LEASE, has_certificate: true };
    let mut third = Member::new(ProcessId(3), "third", 4, terms, stage.now);
    for _ in 0..3 {
        stage.tick(&mut [&mut one, &mut other, &mut third]);
    }
    assert!(matches!(third.end(), Some(End::OtherTerms(_))));
    assert_eq!(stage.maps.len(), before);
    let mut fourth = Member::new(ProcessId(4), "fourth", 4, terms, stage.now);
    for _ in 0..40 {
        stage.tick(&mut [&mut fourth]);
    }
    assert!(fourth.is_carried_out() && fourth.map().processes.len() == 1);
    assert!(fourth.map().processes[&fourth.me()].has_certificate);
}

#[test]
fn a_process_with_another_lease_joins_once_the_longer_one_has_ended() {
    for lease in [seconds(2), seconds(50)] {
        let (mut stage, _, _) = Stage::pair();
        let before = stage.maps.len();
        let mut third = Member::new(ProcessId(3), "third", 4, lease, stage.now);
        let longer = Timing { lease: lease.max(LEASE) }.ended_after().as_secs();
        for _ in 0..longer {
            stage.tick(&mut [&mut third]);
        }
        assert_eq!(stage.maps.len(), before, "{lease:?}");
        for _ in 0..20 {
            stage.tick(&mut [&mut third]);
        }
        assert!(third.is_carried_out() && third.map().processes.len() == 1, "{lease:?}");
        assert_eq!(third.map().processes[&third.me()].lease(), lease);
    }
}
