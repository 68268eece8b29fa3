//! Completions beyond commands and options: the words of find, and names that the index knows. They
//! are added to the scripts that clap makes, so that each shell has one script.

use canopy_tools::find::{self, Operand};
use std::fmt::Write;

/// Sub-commands whose operand is the name of a table or of a source.
const NAMED: [(&str, &str); 4] =
    [("table", "drop"), ("table", "refresh"), ("source", "remove"), ("source", "rename")];

/// Adds to the script for bash.
pub(super) fn bash(script: &str) -> String {
    let words: Vec<&str> = find::words().iter().map(|(word, _)| *word).collect();
    let mut cases = String::new();
    for (word, operand) in find::words() {
        let made = match operand {
            Operand::File => "compgen -f --".to_owned(),
            Operand::User => "compgen -u --".to_owned(),
            Operand::Group => "compgen -g --".to_owned(),
            Operand::Words(words) => format!("compgen -W \"{words}\" --"),
            Operand::None | Operand::Text => continue,
        };
        write_all(
            &mut cases,
            format_args!(
                "                {word})\n                    COMPREPLY=($({made} \"${{cur}}\"))\n                    \
                 return 0\n                    ;;\n"
            ),
        );
    }
    let mut script = in_block(script, "        canopy__subcmd__find)\n", |block| {
        let block = with_words(block, &words.join(" "));
        block.replacen("                *)\n", &format!("{cases}                *)\n"), 1)
    });
    for (command, below) in NAMED {
        let label = format!("        canopy__subcmd__{command}__subcmd__{below})\n");
        script = in_block(&script, &label, |block| {
            with_words(block, &format!("$(_canopy_names {command})"))
        });
    }
    format!(
        "# Names of tables or sources, as far as they have no blanks.\n_canopy_names() {{\n    \
         {} 2>/dev/null | {FIRST_WORDS}\n}}\n\n{script}",
        "command canopy \"$1\" list"
    )
}

/// Command that takes names from the lines of 'canopy table list' and 'canopy source list'.
const FIRST_WORDS: &str = "sed -n 's/^\\([^ :][^ :]*\\)[ :].*/\\1/p'";

/// Returns a block of the script for bash with more to offer.
fn with_words(block: &str, words: &str) -> String {
    block.replacen("opts=\"", &format!("opts=\"{words} "), 1)
}

/// Changes the text between a label and the next one.
fn in_block(script: &str, label: &str, change: impl Fn(&str) -> String) -> String {
    let Some((before, rest)) = script.split_once(label) else { return script.to_owned() };
    let end = rest.find("\n            ;;\n").unwrap_or(rest.len());
    format!("{before}{label}{}{}", change(&rest[..end]), &rest[end..])
}

/// Adds to the script for zsh.
pub(super) fn zsh(script: &str) -> String {
    let mut cases = String::new();
    for (word, operand) in find::words() {
        let made = match operand {
            Operand::File => "_files".to_owned(),
            Operand::User => "_users".to_owned(),
            Operand::Group => "_groups".to_owned(),
            Operand::Words(words) => format!("compadd -- {words}"),
            Operand::None | Operand::Text => continue,
        };
        write_all(&mut cases, format_args!("        ({word}) {made} ;;\n"));
    }
    let words: Vec<&str> = find::words().iter().map(|(word, _)| *word).collect();
    let functions = format!(
        "_canopy_find() {{\n    case $words[CURRENT-1] in\n{cases}        (*)\n            \
         if [[ $words[CURRENT] == -* ]]; then\n                compadd -- {}\n            else\n                \
         _files\n            fi\n            ;;\n    esac\n}}\n\n\
         _canopy_names() {{\n    local -a names\n    \
         names=(${{(f)\"$(command canopy $1 list 2>/dev/null | {FIRST_WORDS})\"}})\n    \
         compadd -- $names\n}}\n\n",
        words.join(" ")
    );
    let find = "'*::arguments -- Paths, then an expression:_default' \\\n&& ret=0\n";
    let found = "'*::arguments -- Paths, then an expression:_canopy_find' \\\n&& ret=0\n\
                 [[ $words[CURRENT] == -* ]] && _canopy_find && ret=0\n";
    let mut script = script.replacen(find, found, 1);
    for (what, command) in [
        ("':name -- The table:", "table"),
        ("'::name -- The table \\[default\\: all derived tables\\]:", "table"),
        ("':source -- Its name or path:", "source"),
    ] {
        let names = format!("{what}{{_canopy_names {command}}}'");
        script = script.replace(&format!("{what}_default'"), &names);
    }
    // Behind the line that says which command it is for.
    match script.split_once("\n\n") {
        Some((head, rest)) => format!("{head}\n\n{functions}{rest}"),
        None => script,
    }
}

/// Returns the lines to add to the script for fish.
pub(super) fn fish() -> String {
    let mut script = String::new();
    for (word, operand) in find::words() {
        let option = match (word.strip_prefix("--"), &word[1..]) {
            (Some(long), _) if long.contains('=') => continue,
            (Some(long), _) => format!("-l {long}"),
            (None, letter) if letter.len() == 1 => format!("-s {letter}"),
            (None, old) => format!("-o {old}"),
        };
        let value = match operand {
            Operand::None => String::new(),
            Operand::Text => " -x".to_owned(),
            Operand::File => " -r -F".to_owned(),
            Operand::User => " -x -a '(__fish_complete_users)'".to_owned(),
            Operand::Group => " -x -a '(__fish_complete_groups)'".to_owned(),
            Operand::Words(words) => format!(" -x -a '{words}'"),
        };
        write_all(
            &mut script,
            format_args!(
                "complete -c canopy -n '__fish_canopy_using_subcommand find' {option}{value}\n"
            ),
        );
    }
    for (command, below) in NAMED {
        write_all(
            &mut script,
            format_args!(
                "complete -c canopy -n '__fish_canopy_using_subcommand {command}; and \
                 __fish_seen_subcommand_from {below}' -f -a \"(command canopy {command} list \
                 2>/dev/null | {FIRST_WORDS})\"\n"
            ),
        );
    }
    script
}

fn write_all(text: &mut String, more: std::fmt::Arguments<'_>) {
    text.write_fmt(more).expect("writing to memory does not fail");
}
