//! All jobs. A job runs in an empty directory that is removed after it, and the directories take
//! turns at each.

use crate::bench::Bench;
use crate::{application, micro, postmark, rates, search};
use anyhow::{Result, bail};

type Work = Box<dyn Fn(&mut Bench) -> Result<()>>;

pub struct Job {
    /// Its heading in the table.
    pub section: &'static str,
    pub name: String,
    pub run: Work,
}

/// Names for `--only`: table, part, section.
const PARTS: &[(&str, &str, &str)] = &[
    ("iv", "create", "Table IV: 100,000 empty files, seconds"),
    ("iv", "update", "Table IV: 200,000 random updates of 200,000 files, seconds"),
    ("v", "postmark", "Table V: PostMark, 20,000 transactions on 10,000 files, seconds"),
    ("v", "application", "Table V: a source tree, seconds"),
    ("vi", "search", "Table VI: searches in 200,000 files that match 1 %, seconds"),
    ("rates", "rates", "Rates: thousand a second, or MB a second"),
];

/// Returns the jobs of tables and parts, in the order of the paper; all, if none is named.
pub fn chosen(only: &[String]) -> Result<Vec<Job>> {
    let known = |name: &String| PARTS.iter().any(|(table, part, _)| name == table || name == part);
    if let Some(name) = only.iter().find(|name| !known(name)) {
        let mut names = Vec::from_iter(PARTS.iter().flat_map(|(table, part, _)| [*table, *part]));
        names.sort_unstable();
        names.dedup();
        bail!("there is no table {name:?}; there are {}", names.join(", "));
    }
    let mut jobs = Vec::new();
    for (table, part, section) in PARTS {
        let is_named = only.iter().any(|name| name == table || name == part);
        if only.is_empty() || is_named {
            add(part, section, &mut jobs);
        }
    }
    Ok(jobs)
}

fn add(part: &str, section: &'static str, jobs: &mut Vec<Job>) {
    let mut push = |name: String, run: Work| {
        jobs.push(Job { section, name, run });
    };
    match part {
        "create" => {
            for directories in [4, 10, 100] {
                for threads in [1, 2] {
                    let name = format!("create in {directories}, threads: {threads}");
                    push(name, Box::new(move |bench| micro::create(bench, directories, threads)));
                }
            }
        }
        "update" => push("update".into(), Box::new(micro::update)),
        "postmark" => {
            for kind in &postmark::KINDS {
                push(kind.name.into(), Box::new(|bench| postmark::run(bench, kind)));
            }
        }
        "application" => push("application".into(), Box::new(application::run)),
        "search" => push("search".into(), Box::new(search::run)),
        _ => {
            for threads in [1, 2] {
                let name = format!("rates, threads: {threads}");
                push(name, Box::new(move |bench| rates::run(bench, threads)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_parts_are_chosen_and_unknown_names_refused() {
        let count = |only: &[&str]| {
            let only = Vec::from_iter(only.iter().map(|name| name.to_string()));
            chosen(&only).map(|jobs| jobs.len()).ok()
        };
        assert_eq!(count(&["iv"]), Some(7));
        assert_eq!(count(&["create", "v"]), Some(9));
        assert_eq!(count(&["search"]), Some(1));
        assert_eq!(count(&[]), Some(13));
        assert_eq!(count(&["vii"]), None);
    }
}
