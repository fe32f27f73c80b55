//! What a pattern means, part by part: one answer for folders and for buckets. Pure.
//!
//! `*`, `?` and `[…]` stay within a part, `**` is any number of parts. As in a shell, none of them meets a name that begins
//! with a dot. Compared are bytes: `a*` does not meet `A`.

use glob::MatchOptions;

/// Parts after the first that holds a wildcard, at most: one bit each in [`Positions`].
const PARTS_MAX: usize = 63;
const RULES: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

/// A name with a wildcard in it.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    /// What stands before the first part with a wildcard, as it was given, without the `/` that ends it.
    pub(super) base: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
enum Part {
    /// `**`: any number of folders.
    Deep,
    One(glob::Pattern),
}

/// Which parts of a pattern may come next, as bits; the bit after the last part's is the pattern's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Positions(u64);

/// Whether a name holds a wildcard.
pub(super) fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

/// The pieces of what was given as one: commas divide, but for those in brackets.
pub(crate) fn pieces(given: &str) -> Vec<&str> {
    let (mut pieces, mut from, mut at) = (Vec::new(), 0, 0);
    while let Some(found) = given[at..].find([',', '[']) {
        at += found;
        if given[at..].starts_with('[') {
            at += class_bytes(&given[at..]);
            continue;
        }
        pieces.push(&given[from..at]);
        at += 1;
        from = at;
    }
    pieces.push(&given[from..]);
    pieces
}

/// Whether a name or pattern, which must be no list of several, means the file at `path`. What is no pattern means nothing.
pub(crate) fn means(name: &str, path: &str) -> bool {
    if !is_pattern(name) {
        return name == path;
    }
    let Ok(pattern) = Pattern::new(name) else { return false };
    let below = match pattern.base.trim_end_matches('/') {
        "" if pattern.base.is_empty() => Some(path),
        base => path.strip_prefix(base).and_then(|below| below.strip_prefix('/')),
    };
    below.is_some_and(|below| {
        pattern.is_met(below.split('/').fold(pattern.start(), |at, part| pattern.step(at, part)))
    })
}

/// Bytes of the class with which `text` begins: up to its `]`, which may be its first member; 1 where it has no end.
fn class_bytes(text: &str) -> usize {
    let members = if text.starts_with("[!") { 2 } else { 1 };
    let first = text[members..].chars().next().map_or(0, char::len_utf8);
    text[members + first..].find(']').map_or(1, |end| members + first + end + 1)
}

impl Pattern {
    /// Reads a pattern, which holds a wildcard.
    ///
    /// # Errors
    /// Why it means nothing.
    pub(super) fn new(text: &str) -> Result<Pattern, String> {
        let wild = text.find(['*', '?', '[']).unwrap_or(text.len());
        let (base, rest) = match text[..wild].rfind('/') {
            None => ("", text),
            Some(0) => ("/", &text[1..]),
            Some(slash) => (&text[..slash], &text[slash + 1..]),
        };
        let parts: Vec<Part> = rest.split('/').map(part).collect::<Result<_, _>>()?;
        if parts.len() > PARTS_MAX {
            return Err(format!("more than {PARTS_MAX} parts after the first wildcard"));
        }
        Ok(Pattern { base: base.to_owned(), parts })
    }

    /// Whether it goes through all folders below some.
    pub(super) fn is_deep(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Deep))
    }

    /// Where reading begins, in the folder `base`.
    pub(super) fn start(&self) -> Positions {
        self.closed(1)
    }

    /// What may come after a name, whose folder was reached at `at`.
    pub(super) fn step(&self, at: Positions, name: &str) -> Positions {
        let is_hidden = name.starts_with('.');
        let mut next = 0;
        for (index, part) in self.parts.iter().enumerate().filter(|(index, _)| at.0 >> index & 1 == 1) {
            match part {
                Part::Deep if !is_hidden => next |= 1 << index,
                Part::One(one) if one.matches_with(name, RULES) => next |= 1 << (index + 1),
                Part::Deep | Part::One(_) => {}
            }
        }
        self.closed(next)
    }

    /// Whether the whole pattern is met.
    pub(super) fn is_met(&self, at: Positions) -> bool {
        at.0 >> self.parts.len() & 1 == 1
    }

    /// Whether more names can follow.
    pub(super) fn goes_on(&self, at: Positions) -> bool {
        at.0 & !(1 << self.parts.len()) != 0
    }

    /// Whether a folder can be meant: the whole pattern is met, and says more of its last part than "any".
    pub(super) fn names_folder(&self, at: Positions) -> bool {
        let is_any = match self.parts.last() {
            Some(Part::One(one)) => one.as_str() == "*",
            Some(Part::Deep) | None => true,
        };
        self.is_met(at) && !is_any
    }

    /// `**` may be no folder at all.
    fn closed(&self, mut bits: u64) -> Positions {
        for (index, part) in self.parts.iter().enumerate() {
            if matches!(part, Part::Deep) && bits >> index & 1 == 1 {
                bits |= 1 << (index + 1);
            }
        }
        Positions(bits)
    }
}

impl Positions {
    /// Whether no name can follow, and none was met.
    pub(super) fn is_nowhere(self) -> bool {
        self.0 == 0
    }
}

fn part(text: &str) -> Result<Part, String> {
    match text {
        "" => Err("it names a folder: name the files in it, as in 'folder/*'".to_owned()),
        "." | ".." => Err(format!("{text:?} after a wildcard: write the path without it")),
        "**" => Ok(Part::Deep),
        _ => glob::Pattern::new(text).map(Part::One).map_err(|wrong| {
            format!("{text:?}: {}; in brackets a character stands for itself, as in '[[]'", wrong.msg)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_divide_names_but_for_those_in_brackets() {
        for (given, divided) in [
            ("a", &["a"][..]),
            ("a,b", &["a", "b"]),
            ("a[,]b,c", &["a[,]b", "c"]),
            ("a[!,]b", &["a[!,]b"]),
            ("a[],]b,c", &["a[],]b", "c"]),
            ("a[!],]b,c", &["a[!],]b", "c"]),
            ("a[1,b", &["a[1", "b"]),
            ("é[é,]é,é", &["é[é,]é", "é"]),
            ("a,", &["a", ""]),
            ("[", &["["]),
            ("[!", &["[!"]),
        ] {
            assert_eq!(pieces(given), divided, "{given}");
        }
    }

    #[test]
    fn what_means_nothing_is_said_with_the_way_out() {
        for (text, needle) in [
            ("a/[x", "stands for itself"),
            ("a/[]", "stands for itself"),
            ("a**b", "path component"),
            ("*/", "folder/*"),
            ("*//a", "folder/*"),
            ("*/../a", "after a wildcard"),
            (&"*/".repeat(70), "63 parts"),
        ] {
            let why = Pattern::new(text).unwrap_err();
            assert!(why.contains(needle) || text.len() > 100, "{text}: {why}");
        }
    }
}
