//! Visits every state that can be reached, breadth first. Of states that were visited only a hash
//! of 128 bits and that of the state before are kept, so a trace is found by going through it
//! again.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use xxhash_rust::xxh3::xxh3_128;

/// What is explored.
pub trait Model {
    /// A state of everything: storage, and whoever uses it.
    type State: Clone + Hash;

    /// Adds every state that one step leads to.
    fn step(&self, state: &Self::State, next: &mut Vec<Self::State>);

    /// Returns the property that does not hold in this state.
    fn broken(&self, state: &Self::State) -> Option<&'static str>;
}

/// What was found.
pub struct Explored<S> {
    /// How many states there are, or were until one was wrong.
    pub states: usize,
    /// The property that does not hold, and the states that lead there, from the first one on.
    pub broken: Option<(&'static str, Vec<S>)>,
}

/// A hash is taken as it is: it is one already.
#[derive(Default)]
struct Taken(u64);

impl Hasher for Taken {
    fn write(&mut self, bytes: &[u8]) {
        let mut low = [0; 8];
        low.copy_from_slice(&bytes[..8]);
        self.0 = u64::from_ne_bytes(low);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Visited = HashMap<u128, u128, BuildHasherDefault<Taken>>;

/// Bytes that are hashed together, since most values have one only.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Hasher for Bytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn write_u8(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Lengths, and which variant of an enum it is.
    fn write_usize(&mut self, number: usize) {
        self.0.push(number as u8);
    }

    fn write_isize(&mut self, number: isize) {
        self.0.push(number as u8);
    }

    fn finish(&self) -> u64 {
        unreachable!("the bytes are hashed as a whole")
    }
}

/// Returns 128 bits that stand for a state.
pub fn hash_of<S: Hash>(state: &S) -> u128 {
    let mut bytes = Bytes(Vec::with_capacity(2048));
    state.hash(&mut bytes);
    xxh3_128(&bytes.0)
}

/// Visits every state that can be reached from `first`, until a property does not hold.
pub fn explore<M: Model>(model: &M, first: M::State) -> Explored<M::State> {
    let mut visited = Visited::default();
    let hash = hash_of(&first);
    visited.insert(hash, 0);
    let mut layer = vec![(hash, first.clone())];
    let mut next = Vec::new();
    while !layer.is_empty() {
        let mut following = Vec::new();
        for (before, state) in layer {
            if let Some(property) = model.broken(&state) {
                let trace = trace(model, first, before, &visited);
                return Explored { states: visited.len(), broken: Some((property, trace)) };
            }
            model.step(&state, &mut next);
            for state in next.drain(..) {
                let hash = hash_of(&state);
                visited.entry(hash).or_insert_with(|| {
                    following.push((hash, state));
                    before
                });
            }
        }
        layer = following;
    }
    Explored { states: visited.len(), broken: None }
}

fn trace<M: Model>(model: &M, first: M::State, last: u128, visited: &Visited) -> Vec<M::State> {
    let is_not_first = |hash: &u128| Some(visited[hash]).filter(|before| *before != 0);
    let mut hashes: Vec<u128> = std::iter::successors(Some(last), is_not_first).collect();
    hashes.pop();
    let mut states = vec![first];
    while let Some(hash) = hashes.pop() {
        let mut next = Vec::new();
        model.step(&states[states.len() - 1], &mut next);
        states.extend(next.into_iter().find(|state| hash_of(state) == hash));
    }
    states
}
