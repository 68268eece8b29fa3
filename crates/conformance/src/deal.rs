//! The steps of a case, dealt to several mounts of one file system.
//!
//! Steps alternate between mounts. A step with a descriptor or a map goes to the mount where it was
//! opened. `snap` and `changed` remember times in one process, so they go to the first mount. In a
//! case about the state of a process, such as its umask or its locks, or with a call that takes two
//! descriptors, each process has one mount.

use crate::case::{Case, Step};
use std::collections::{HashMap, HashSet};

/// Calls about the state of a process.
const OF_PROCESS: &[&str] = &[
    "umask",
    "chdir",
    "fchdir",
    "getcwd",
    "limit-size",
    "run",
    "start",
    "install",
    "remount",
    "bind",
    "kernel",
    "flock",
    "setlk",
    "setlkw",
    "getlk",
    "ofd-setlk",
    "ofd-setlkw",
    "ofd-getlk",
    "await",
    "pending",
];

/// Calls that remember something in a process.
const REMEMBERING: &[&str] = &["snap", "changed"];

/// Returns the mount of each step of a case.
pub fn deal(case: &Case, mounts: usize) -> Vec<usize> {
    let opened = case.steps.iter().filter(|step| opens(step));
    let opened = HashSet::from_iter(opened.filter_map(|step| step.variable.as_deref()));
    let takes_several = |step: &Step| {
        let taken = HashSet::<&str>::from_iter(variables(&step.call));
        taken.intersection(&opened).count() > 1
    };
    let is_of_process =
        |step: &Step| step.later || OF_PROCESS.contains(&name(&step.call)) || takes_several(step);
    if case.steps.iter().any(is_of_process) {
        let mut of: HashMap<&str, usize> = HashMap::new();
        let steps = case.steps.iter().map(|step| {
            let next = of.len();
            *of.entry(&step.who).or_insert(next) % mounts
        });
        return steps.collect();
    }
    let mut opened: HashMap<&str, usize> = HashMap::new();
    let mut next = 0;
    let mut dealt = Vec::with_capacity(case.steps.len());
    for step in &case.steps {
        let bound = variables(&step.call).find_map(|name| opened.get(name).copied());
        let mount = match bound {
            Some(mount) => mount,
            None if REMEMBERING.contains(&name(&step.call)) => 0,
            None => {
                next += 1;
                next % mounts
            }
        };
        if let Some(variable) = step.variable.as_deref().filter(|_| opens(step)) {
            opened.insert(variable, mount);
        }
        dealt.push(mount);
    }
    dealt
}

/// Returns whether a step makes a descriptor or a map.
fn opens(step: &Step) -> bool {
    ["open", "openat", "creat", "dup", "map"].contains(&name(&step.call))
}

/// Returns the name of a call.
fn name(call: &str) -> &str {
    call.split_ascii_whitespace().next().unwrap_or_default()
}

/// Returns the variables that a call uses.
fn variables(call: &str) -> impl Iterator<Item = &str> {
    let names = call.split('$').skip(1);
    names.map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite;

    fn dealt(script: &str) -> Vec<usize> {
        deal(&suite::cases_of(script).unwrap()[0], 2)
    }

    #[test]
    fn steps_alternate_but_for_those_with_a_descriptor() {
        let steps = "case a\n  mkdir d 0755\n  create d/f\n  x = open d/f O_RDWR\n  write $x a\n  cat d/f\n";
        assert_eq!(dealt(steps), [1, 0, 1, 1, 0]);
        let times = "case a\n  create f\n  snap f\n  chmod f 0600\n  changed f\n";
        assert_eq!(dealt(times), [1, 0, 0, 0]);
        let both =
            "case a\n  x = open f O_RDWR\n  y = open g O_RDWR\n  copy_file_range $x 0 $y 0 1\n";
        assert_eq!(dealt(both), [0, 0, 0]);
        let process = "case a\n  umask 022\n  u1: create f\n  create g\n";
        assert_eq!(dealt(process), [0, 1, 0]);
    }
}
