//! Tables of plain text.

/// Cells in columns: the first to the left, the others to the right.
pub fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_at_the_left_and_numbers_at_the_right_of_columns_as_wide_as_their_widest() {
        let rows = [vec!["ä", "1"], vec!["bcd", "234", "5"], vec![]];
        let rows = rows.map(|row| row.into_iter().map(str::to_owned).collect());
        assert_eq!(aligned(&rows), "ä      1\nbcd  234  5\n\n");
        assert_eq!(aligned(&[]), "");
    }
}
