//! Tools for fuzzing: entry points of decoders, one a name, and a mutator for runs without a
//! fuzzer. No part of the interface of this crate.
//!
//! The targets of every crate are called both by `fuzz/` and by a short deterministic run in its
//! tests. A target must return, whatever the bytes are.

pub mod lustre;

use crate::lustre::{HsmState, Layout, Stripes, forget_ids};
use crate::{Acl, xattr_names};

/// A decoder of bytes from outside, and bytes that it can decode.
pub struct Target {
    /// The format that it decodes.
    pub name: &'static str,
    /// Decodes bytes, and checks what must hold of the outcome.
    pub run: fn(&[u8]),
    /// Returns valid inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    Target { name: "acl", run: acl, seeds: acl_seeds },
    Target {
        name: "xattr_names",
        run: names,
        seeds: || vec![br"user.a,user.b\,\\,system.c".into()],
    },
    Target { name: "lustre_layout", run: layout, seeds: lustre::layouts },
    Target {
        name: "lustre_others",
        run: others,
        seeds: || vec![lustre::striped(&[1, 0], 3), lustre::hsm(9, 1)],
    },
];

fn acl(bytes: &[u8]) {
    if let Ok(acl) = Acl::decode(bytes) {
        assert_eq!(Acl::decode(&acl.encode()), Ok(acl), "what was decoded is encoded alike");
    }
}

fn acl_seeds() -> Vec<Vec<u8>> {
    let entry = |tag: u8, permissions: u8, id: u32| {
        [&[tag, 0, permissions, 0][..], &id.to_le_bytes()].concat()
    };
    let none = u32::MAX;
    let entries = [
        entry(1, 7, none),
        entry(2, 5, 1000),
        entry(4, 5, none),
        entry(8, 0, 20),
        entry(16, 5, none),
        entry(32, 0, none),
    ];
    vec![[&2_u32.to_le_bytes()[..], &entries.concat()].concat()]
}

fn names(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for name in xattr_names::decode(&text) {
        assert!(xattr_names::has(&text, &name));
    }
}

fn layout(bytes: &[u8]) {
    let Some(layout) = Layout::decode(bytes) else { return };
    let mut stripes = 0;
    for size in [0, 1, u64::MAX] {
        stripes = 0;
        layout.each_stripe(size, |_, stripe| {
            assert!(stripe.bytes <= size);
            stripes += 1;
        });
    }
    assert!(stripes * 24 <= bytes.len(), "no more than the bytes hold");
    let mut without_ids = bytes.to_vec();
    forget_ids(&mut without_ids);
    let kept = Layout::decode(&without_ids).expect("ids decide nothing");
    assert!(kept.components.iter().zip(&layout.components).all(|(a, b)| a.osts().eq(b.osts())));
    assert!(layout.components.len() * 48 <= bytes.len().max(48));
    for part in &layout.components {
        assert!(part.pattern_words().count() + part.flag_words().count() <= 20);
    }
}

fn others(bytes: &[u8]) {
    if let Some(stripes) = Stripes::decode(bytes) {
        assert!(!stripes.hash_word().is_empty());
    }
    if let Some(state) = HsmState::decode(bytes) {
        assert!(state.words().all(|word| HsmState::bit(word).is_some()));
    }
}

/// Runs a target on its seeds and on `runs` changed copies of them, the same ones each time.
pub fn mutate_and_run(target: &Target, runs: usize) {
    let seeds = (target.seeds)();
    seeds.iter().for_each(|seed| (target.run)(seed));
    (target.run)(&[]);
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for _ in 0..runs {
        let mut bytes = seeds[random.below(seeds.len())].clone();
        for _ in 0..=random.below(4) {
            random.change(&mut bytes, &seeds);
        }
        (target.run)(&bytes);
    }
}

/// Numbers that look random (xorshift64*), the same ones each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 33) as usize % end.max(1)
    }

    /// Changes bytes in one of the ways that fuzzers have found to matter.
    fn change(&mut self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        const EDGES: [u8; 12] = [0, 1, 0x7F, 0x80, 0xFF, b'\n', b'"', b',', b'/', b'.', b'-', b'9'];
        let at = self.below(bytes.len() + 1);
        let length = self.below(9).min(bytes.len() - at);
        let any = self.next() as u8;
        match self.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << (any & 7),
            1 if at < bytes.len() => bytes[at] = any,
            2 if at < bytes.len() => bytes[at] = EDGES[usize::from(any) % EDGES.len()],
            3 => bytes.insert(at, EDGES[usize::from(any) % EDGES.len()]),
            4 => drop(bytes.drain(at..at + length)),
            5 => bytes.truncate(at),
            _ => {
                let other = &seeds[self.below(seeds.len())];
                let from = self.below(other.len() + 1);
                let piece = &other[from..other.len().min(from + self.below(64))];
                bytes.splice(at..at, piece.iter().copied());
            }
        }
    }
}
