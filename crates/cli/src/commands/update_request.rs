//! `canopy update` of users who may not write an index: they ask the daemon that follows it.

use crate::invocation::Invocation;
use crate::outcome::{Outcome, message, say, say_json};
use anyhow::Context;
use canopy_ingest::update::Suspect;
use canopy_site::Updater;
use canopy_text::safe::table_cell;
use canopy_watch::requests::{self, Answer};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Directories to ask for, by index.
pub type ByIndex = BTreeMap<PathBuf, Vec<PathBuf>>;

/// Takes out the directories whose index is another user's.
///
/// # Errors
///
/// If a path is in no source, or nobody takes requests for its index.
pub fn take_out(invocation: &Invocation, named: &mut Vec<Suspect>) -> anyhow::Result<ByIndex> {
    let mut asked = ByIndex::new();
    for suspect in std::mem::take(named) {
        match invocation.site.index_to_update(&suspect.path)? {
            Updater::Caller(_) => named.push(suspect),
            Updater::Daemon(index) => asked.entry(index).or_default().push(suspect.path),
        }
    }
    Ok(asked)
}

/// Asks for directories to be listed again and waits for that. Prints for each one the generation
/// that contains it, on a line or as an object of JSON. Fails if none is listed.
///
/// # Errors
///
/// If the daemon cannot be asked, or lists none of the directories.
pub fn ask(asked: ByIndex, json: bool) -> anyhow::Result<Outcome> {
    let (mut served, mut refused, mut unsaid) = (0, Vec::new(), None);
    for (index, paths) in &asked {
        let mut answered = 0;
        let heard = requests::ask(index, paths, &mut |path, answer| {
            answered += 1;
            match answer {
                Answer::Updated(generation) => {
                    served += 1;
                    let shown = path.display().to_string();
                    let said = match json {
                        true => say_json(&json!({ "generation": generation, "path": shown })),
                        false => say(format_args!(
                            "generation {generation} has {}",
                            table_cell(&shown, false)
                        )),
                    };
                    unsaid = unsaid.take().or(said.err());
                }
                answer => refused.push(format!("{}: {}", path.display(), why(answer, index))),
            }
        });
        match heard.as_ref().map_err(std::io::Error::kind) {
            Ok(()) => {}
            Err(ErrorKind::NotFound | ErrorKind::ConnectionRefused) => refused.push(format!(
                "the index {} is written by uid {} alone, and no daemon of this machine takes \
                 requests for it: who may write it runs 'canopy watch', or 'canopy update' with \
                 these directories",
                index.display(),
                index.metadata().with_context(|| format!("cannot open {}", index.display()))?.uid()
            )),
            Err(ErrorKind::UnexpectedEof) => refused.push(format!(
                "{}: the daemon of {} ended before it had answered",
                paths.get(answered).map_or(Path::new("?"), PathBuf::as_path).display(),
                index.display()
            )),
            Err(_) => {
                heard.with_context(|| format!("cannot ask the daemon of {}", index.display()))?
            }
        }
    }
    if let Some(error) = unsaid {
        return Err(error);
    }
    let Some(last) = refused.pop() else { return Ok(Outcome::Complete) };
    refused.iter().for_each(message);
    anyhow::ensure!(served > 0, "{last}");
    message(last);
    Ok(Outcome::Partial)
}

/// Says why a directory was not listed again.
fn why(answer: Answer, index: &Path) -> String {
    let index = index.display();
    match answer {
        Answer::Updated(_) => String::new(),
        Answer::Denied(errno) => {
            format!("you cannot list it: {}", std::io::Error::from_raw_os_error(errno))
        }
        Answer::Elsewhere => format!("it is in nothing that the daemon of {index} follows"),
        Answer::Spent(time) => format!(
            "as much was listed for you as one user may ask for; ask again in {} s",
            time.as_secs()
        ),
        Answer::Busy => format!("the daemon of {index} is busy; ask again later"),
        Answer::TooLong(time) => format!(
            "listing it took more than {} s; ask who may write {index} for 'canopy update'",
            time.as_secs()
        ),
    }
}
