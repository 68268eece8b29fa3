//! Suggestions for a wrong word on the command line: similar names, and names from other tools.
//! clap's own measure finds words similar that share a few letters.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};

/// Words of other tools and of people for commands, with the sentence that is suggested.
const COMMANDS: [(&str, &str); 19] = [
    ("scan crawl walk build create add ingest reindex", "'canopy index' scans trees"),
    ("rescan refresh sync", "'canopy update' scans parts of a tree again"),
    ("search fd", "'canopy find' searches by expressions, 'canopy locate' by names"),
    ("grep rg", "'canopy find' searches names and attributes; contents of files are not indexed"),
    ("query select", "'canopy sql' answers queries"),
    ("dir ll list", "'canopy ls' lists directories"),
    ("usage ncdu space", "'canopy du --tree' shows what takes space"),
    ("df status", "'canopy info' describes the index"),
    ("stats statistics summary", "'canopy report' shows statistics, 'canopy du' sums"),
    ("size sizes", "'canopy du' adds up sizes, 'canopy top largest' shows the largest files"),
    ("largest biggest", "'canopy top largest' shows the largest files"),
    ("dupes duplicates", "'canopy top duplicates' shows files that may be copies"),
    ("users groups owners", "'canopy top users' shows who takes how much"),
    ("quota quotas", "'canopy report --limits FILE' compares usage with limits"),
    ("dump", "'canopy export' writes entries out"),
    ("load", "'canopy import' reads listings of other tools"),
    ("daemon follow monitor", "'canopy watch' keeps an index up to date"),
    (
        "rm delete remove",
        "'canopy find --live ... -delete' deletes files, 'canopy source remove' forgets a tree",
    ),
    ("serve server web html", "'canopy report --html' writes a page"),
];

/// Like `COMMANDS`, for what stands behind a command.
const SUBCOMMANDS: [(&str, &str, &str); 7] = [
    ("ns", "list ls search", "'canopy ns find' prints paths"),
    ("ns", "status df stat", "'canopy ns info' describes a namespace"),
    ("ns", "quotas limit limits", "'canopy ns quota' shows and sets limits"),
    ("ns", "restore rollback", "'canopy ns snapshot restore' goes back to a snapshot"),
    ("ns", "fsck repair", "'canopy ns check --repair' repairs a namespace"),
    ("source", "add new", "'canopy index PATH' adds a source"),
    ("source", "rm delete", "'canopy source remove' takes a source out of the index"),
];

/// Like `COMMANDS`, for the questions of `canopy top`.
const QUESTIONS: [(&str, &str); 10] = [
    ("size sizes big bigger biggest large top", "largest"),
    ("old older", "oldest"),
    ("new newer recent latest", "newest"),
    ("dir dirs folders", "directories"),
    ("usage space du subtrees", "trees"),
    ("dupes copies duplicate", "duplicates"),
    ("hardlinks hard-links", "links"),
    ("broken dangling", "symlinks"),
    ("user owners owner who", "users"),
    ("ext types suffixes", "extensions"),
];

/// Options of other tools, by command.
const OPTIONS: [(&str, &str, &str); 7] = [
    ("sql", "--csv --json --ndjson --parquet --markdown --box", "--format csv sets the form"),
    ("export", "--csv --json --ndjson --parquet --ncdu", "--format csv sets the form"),
    ("index", "--full --all --rebuild --force", "all is scanned again without --incremental"),
    ("index", "--update --refresh", "--incremental writes only what has changed"),
    ("index", "--jobs --parallel", "--threads N sets how many threads scan"),
    ("top", "--limit --top --number", "-n N shows N rows"),
    ("report", "--limit --count", "--top N shows N rows of each list"),
];

/// Leaves suggestions out that are not near, and adds what other words mean. `command` is that of
/// the command line.
pub fn improve(error: &mut clap::Error, command: Option<&str>) {
    for (wrong, suggested) in [
        (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        (ContextKind::InvalidValue, ContextKind::SuggestedValue),
    ] {
        let Some(ContextValue::String(word)) = error.get(wrong).cloned() else { continue };
        keep_near(error, suggested, &word);
        let meant = match wrong {
            ContextKind::InvalidSubcommand if command == Some(&*word) => {
                meaning(&COMMANDS, &word).map(str::to_owned)
            }
            ContextKind::InvalidSubcommand => {
                behind(&SUBCOMMANDS, command, &word).map(str::to_owned)
            }
            ContextKind::InvalidArg => {
                let name = word.split('=').next().unwrap_or(&word);
                behind(&OPTIONS, command, name).map(str::to_owned)
            }
            _ if command == Some("top") && is_question(error) => {
                meaning(&QUESTIONS, &word).map(|question| format!("'canopy top {question}'"))
            }
            _ => None,
        };
        if let Some(meant) = meant {
            error.remove(suggested);
            let meant = StyledStr::from(meant);
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![meant]));
        }
    }
}

/// Removes suggestions that are not near a word.
fn keep_near(error: &mut clap::Error, kind: ContextKind, word: &str) {
    let bare = |word: &str| word.trim_start_matches('-').to_lowercase();
    let is_near = |known: &String| canopy_text::is_near(&bare(known), &bare(word));
    let kept = match error.remove(kind) {
        Some(ContextValue::String(one)) if is_near(&one) => ContextValue::String(one),
        Some(ContextValue::Strings(several)) => {
            let near: Vec<String> = several.into_iter().filter(is_near).collect();
            if near.is_empty() {
                return;
            }
            ContextValue::Strings(near)
        }
        _ => return,
    };
    error.insert(kind, kept);
}

fn is_question(error: &clap::Error) -> bool {
    let argument = error.get(ContextKind::InvalidArg);
    matches!(argument, Some(ContextValue::String(name)) if name.contains("QUESTION"))
}

/// Returns the sentence for a word that follows a command.
fn behind(
    table: &[(&str, &str, &'static str)],
    command: Option<&str>,
    word: &str,
) -> Option<&'static str> {
    let of_command = table.iter().filter(|(of, ..)| command == Some(of));
    of_command.filter(|(_, words, _)| has(words, word)).map(|(.., meant)| *meant).next()
}

fn meaning(table: &[(&str, &'static str)], word: &str) -> Option<&'static str> {
    let word = word.to_lowercase();
    table.iter().find(|(words, _)| has(words, &word)).map(|(_, meant)| *meant)
}

fn has(words: &str, word: &str) -> bool {
    words.split(' ').any(|known| known == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::Cli;
    use clap::CommandFactory;

    #[test]
    fn words_of_other_tools_lead_to_ours_and_only_near_ones_are_suggested() {
        for (words, expected, unwanted) in [
            (&["scan", "/"][..], "tip: 'canopy index' scans trees", "'man'"),
            (&["top", "sizes"], "tip: 'canopy top largest'", "exists: 'users'"),
            (&["index", "--full"], "tip: all is scanned again", "--follow"),
            (&["idnex"], "a similar subcommand exists: 'index'", "scans"),
            (&["top", "larges"], "a similar value exists: 'largest'", "canopy top largest"),
            (&["index", "--incrementl"], "'--incremental'", "scanned"),
            (&["xyzzy"], "xyzzy", "tip: a similar"),
            (&["source", "rm"], "tip: 'canopy source remove'", "-delete"),
            (&["table", "rm"], "unrecognized subcommand 'rm'", "-delete"),
            (&["export", "--csv"], "tip: --format csv", "--csv-safe'"),
        ] {
            let words: Vec<&str> = ["canopy"].iter().chain(words).copied().collect();
            let mut command = Cli::command();
            let Err(mut error) = command.try_get_matches_from_mut(words.clone()) else { panic!() };
            improve(&mut error, words.get(1).copied());
            let told = error.render().to_string();
            assert!(told.contains(expected), "{words:?}: {told}");
            assert!(!told.contains(unwanted), "{words:?}: {told}");
        }
    }
}
