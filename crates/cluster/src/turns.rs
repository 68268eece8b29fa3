//! Jobs of several clients that wait for threads. Clients are served in turns, and each has a share of
//! the threads at most, so one with many or slow jobs costs others little.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Jobs that wait, and the clients whose jobs run.
pub(crate) struct Turns<K, J> {
    clients: HashMap<K, Client<J>>,
    /// Clients with jobs that may run, and their shares of the threads, in the order of their turns.
    order: VecDeque<(K, usize)>,
    /// Number of all jobs that wait.
    waiting: usize,
}

/// Jobs of one client.
struct Client<J> {
    waiting: VecDeque<J>,
    running: usize,
    has_turn: bool,
}

/// A job that was taken, with its client and the share of that one.
pub(crate) struct Taken<K, J> {
    pub(crate) client: K,
    pub(crate) share: usize,
    pub(crate) job: J,
}

impl<K, J> Default for Turns<K, J> {
    fn default() -> Self {
        Turns { clients: HashMap::new(), order: VecDeque::new(), waiting: 0 }
    }
}

impl<J> Default for Client<J> {
    fn default() -> Self {
        Client { waiting: VecDeque::new(), running: 0, has_turn: false }
    }
}

impl<K: Clone + Eq + Hash, J> Turns<K, J> {
    /// Adds a job of a client that uses at most `share` threads at once.
    pub(crate) fn add(&mut self, client: K, share: usize, job: J) {
        self.clients.entry(client.clone()).or_default().waiting.push_back(job);
        self.waiting += 1;
        self.give_turn(client, share);
    }

    /// Takes the next job of the client whose turn it is. It runs until `ended`.
    pub(crate) fn next(&mut self) -> Option<Taken<K, J>> {
        let (client, share) = self.order.pop_front()?;
        let of = self.clients.get_mut(&client)?;
        of.has_turn = false;
        let job = of.waiting.pop_front()?;
        of.running += 1;
        self.waiting -= 1;
        self.give_turn(client.clone(), share);
        Some(Taken { client, share, job })
    }

    /// Notes that a job of a client has ended.
    pub(crate) fn ended(&mut self, client: K, share: usize) {
        let Some(of) = self.clients.get_mut(&client) else { return };
        of.running = of.running.saturating_sub(1);
        match of.running == 0 && of.waiting.is_empty() {
            true => _ = self.clients.remove(&client),
            false => self.give_turn(client, share),
        }
    }

    /// Returns the number of jobs that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns whether a job may run now.
    pub(crate) fn has_next(&self) -> bool {
        !self.order.is_empty()
    }

    /// Drops all jobs that wait.
    pub(crate) fn clear(&mut self) {
        *self = Turns::default();
    }

    /// Gives a client a turn, if it has a job that may run.
    fn give_turn(&mut self, client: K, share: usize) {
        let Some(of) = self.clients.get_mut(&client) else { return };
        if !of.has_turn && !of.waiting.is_empty() && of.running < share {
            of.has_turn = true;
            self.order.push_back((client, share));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(turns: &mut Turns<char, u32>) -> Option<(char, u32)> {
        turns.next().map(|taken| (taken.client, taken.job))
    }

    #[test]
    fn clients_take_turns_within_their_shares() {
        let mut turns = Turns::default();
        (0..3).for_each(|job| turns.add('a', 2, job));
        turns.add('b', 1, 7);
        assert_eq!(take(&mut turns), Some(('a', 0)));
        assert_eq!(take(&mut turns), Some(('b', 7)));
        assert_eq!(take(&mut turns), Some(('a', 1)));
        assert_eq!((take(&mut turns), turns.waiting()), (None, 1), "beyond its share");
        turns.ended('b', 1);
        turns.ended('a', 2);
        assert_eq!(take(&mut turns), Some(('a', 2)));
        [0, 0].iter().for_each(|_| turns.ended('a', 2));
        assert!(turns.clients.is_empty() && !turns.has_next());
    }
}
