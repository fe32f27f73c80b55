//! What of a text fits onto a terminal: as many lines as it has rows, each as long as it has columns. Pure.

use unicode_width::UnicodeWidthChar;

/// A terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// How many fit beside one another.
    pub columns: usize,
    /// How many lines fit.
    pub rows: usize,
}

/// A line and what more there is to it, which is summed up where there is no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Of two, the one with the lower number stays; none gives way to all details of others.
    pub weight: Option<usize>,
    /// What is shown first.
    pub head: String,
    /// What more there is.
    pub details: Vec<String>,
}

impl Section {
    /// Of lines of which the first is the head; none without any.
    pub fn of(weight: Option<usize>, lines: impl IntoIterator<Item = String>) -> Option<Section> {
        let mut lines = lines.into_iter();
        let head = lines.next()?;
        Some(Section { weight, head, details: lines.collect() })
    }

    /// All of its lines.
    pub fn lines(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.head).chain(&self.details)
    }
}

/// The lines that fit: all heads that have a weight before any details, of what is left every section as much as any other, and
/// in the end the heads without.
pub fn fitted(sections: &[Section], size: Size) -> Vec<String> {
    let (mut weighty, light): (Vec<usize>, Vec<usize>) =
        (0..sections.len()).partition(|at| sections[*at].weight.is_some());
    weighty.sort_by_key(|at| sections[*at].weight);
    weighty.truncate(size.rows);
    let room = size.rows - weighty.len();
    let mut shares = shares(sections, &weighty, room);
    let left = room - shares.iter().flatten().sum::<usize>();
    light.into_iter().take(left).for_each(|at| shares[at] = Some(0));
    let mut lines = Vec::new();
    for (section, share) in sections.iter().zip(shares).filter_map(|(one, share)| Some((one, share?))) {
        lines.push(section.head.clone());
        let details = &section.details;
        if share >= details.len() {
            lines.extend_from_slice(details);
        } else if let Some(shown) = share.checked_sub(1) {
            lines.extend_from_slice(&details[..shown]);
            lines.push(format!("  … {} more", details.len() - shown));
        }
    }
    lines.iter().map(|line| cut(line, size.columns)).collect()
}

/// How many lines for details each section has; none for one that is not shown at all.
fn shares(sections: &[Section], shown: &[usize], mut room: usize) -> Vec<Option<usize>> {
    let mut shares = vec![None; sections.len()];
    let mut shown = shown.to_vec();
    shown.sort_by_key(|at| sections[*at].details.len());
    for (place, at) in shown.iter().enumerate() {
        let share = sections[*at].details.len().min(room / (shown.len() - place));
        shares[*at] = Some(share);
        room -= share;
    }
    shares
}

/// A text on one line of so many columns, with a mark where it goes on. What would move the cursor is a blank.
pub fn cut(text: &str, columns: usize) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let width = |c: char| c.width().unwrap_or(0);
    if plain.clone().map(width).sum::<usize>() <= columns {
        return plain.collect();
    }
    let mut left = columns.saturating_sub(1);
    let kept = plain.take_while(|c| match left.checked_sub(width(*c)) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    });
    let kept: String = kept.collect();
    if columns == 0 { String::new() } else { kept + "…" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use unicode_width::UnicodeWidthStr;

    fn section(weight: impl Into<Option<usize>>, head: &str, details: usize) -> Section {
        let details = (0..details).map(|at| format!("  {head}-{at}")).collect();
        Section { weight: weight.into(), head: head.to_owned(), details }
    }
    fn job() -> Vec<Section> {
        vec![
            section(3, "job", 0),
            section(0, "progress", 0),
            section(1, "trainers", 4),
            section(2, "pservers", 2),
            section(None, "tasks", 0),
        ]
    }
    fn at(columns: usize, rows: usize) -> Vec<String> {
        fitted(&job(), Size { columns, rows })
    }

    fn all_but(left_out: &str) -> Vec<String> {
        at(80, 99).into_iter().filter(|line| line != left_out).collect()
    }

    #[test]
    fn all_is_shown_where_all_fits() {
        let all: Vec<String> = job().iter().flat_map(Section::lines).cloned().collect();
        assert_eq!(at(80, 11), all);
        assert_eq!(at(80, 24), all);
    }

    #[test]
    fn members_are_summed_up_before_anything_is_left_out() {
        let nine = ["job", "progress", "trainers", "  trainers-0", "  trainers-1", "  … 2 more"];
        assert_eq!(at(80, 10), all_but("tasks"), "what counts the least goes first");
        assert_eq!(at(80, 9), [&nine[..], &["pservers", "  pservers-0", "  pservers-1"]].concat());
        assert_eq!(at(80, 5), ["job", "progress", "trainers", "  … 4 more", "pservers"]);
        assert_eq!(at(80, 4), ["job", "progress", "trainers", "pservers"]);
        assert_eq!(at(80, 3), ["progress", "trainers", "pservers"]);
        assert_eq!(at(80, 1), ["progress"]);
        assert!(at(80, 0).is_empty());
    }

    #[test]
    fn lines_end_where_the_terminal_does() {
        assert_eq!(at(4, 2), ["pro…", "tra…"]);
        assert_eq!(cut("epoch 1", 7), "epoch 1");
        assert_eq!(cut("漢字漢字", 5), "漢字…");
        assert_eq!(cut("漢字漢字", 4), "漢…");
        assert_eq!(cut("two\nlines\x1b[2J", 20), "two lines [2J");
        assert_eq!((cut("ab", 1), cut("ab", 0)), ("…".to_owned(), String::new()));
    }

    proptest! {
        #[test]
        fn nothing_is_ever_larger_than_the_terminal(
            rows in 0usize..12, columns in 0usize..20, details in proptest::collection::vec(0usize..9, 0..6)
        ) {
            let sections: Vec<Section> =
                details.iter().enumerate().map(|(at, count)| section(at, "漢字 head", *count)).collect();
            let lines = fitted(&sections, Size { columns, rows });
            prop_assert!(lines.len() <= rows);
            prop_assert!(lines.iter().all(|line| line.width() <= columns));
            // No row is left empty while there is something to put there.
            let all: usize = sections.iter().map(|section| 1 + section.details.len()).sum();
            prop_assert_eq!(lines.len(), all.min(rows));
        }
    }
}
