//! The command line that plays one seed of this one again. Pure.

use shoal_runner::shell::quoted;
use std::ffi::OsString;

/// Flags that choose what is played, each with a value.
const CHOICES: [&str; 3] = ["--faults", "--seeds", "--folder"];

/// `words` is the command line of this process.
pub(super) fn command(words: impl Iterator<Item = OsString>, seed: u64) -> String {
    let (mut again, mut is_value, mut is_program) = (Vec::new(), false, false);
    for word in words {
        is_program |= word == "--";
        let text = word.to_string_lossy();
        let is_choice = !is_program && CHOICES.iter().any(|choice| text == *choice);
        let is_one_word =
            |choice: &&str| text.strip_prefix(*choice).is_some_and(|rest| rest.starts_with('='));
        if is_choice || is_value || !is_program && CHOICES.iter().any(is_one_word) {
            is_value = is_choice;
            continue;
        }
        again.push(quoted(&word));
        if again.len() == 2 {
            again.push(format!("--seeds {seed}..{}", seed + 1));
        }
    }
    again.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_is_played_again_with_the_same_flags_and_program() {
        let words = [
            "shoal",
            "chaos",
            "--faults",
            "9",
            "--data",
            "d/*.recordio",
            "--folder=x",
            "--tls",
            "--",
            "prog",
            "--faults",
            "it's",
        ];
        let again = command(words.iter().map(OsString::from), 17);
        assert_eq!(
            again,
            r"shoal chaos --seeds 17..18 --data 'd/*.recordio' --tls -- prog --faults 'it'\''s'"
        );
        let words = ["shoal", "chaos", "--seeds=3..9", "--", "prog"];
        assert_eq!(command(words.iter().map(OsString::from), 4), "shoal chaos --seeds 4..5 -- prog");
    }
}
