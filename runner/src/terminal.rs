//! The terminal that a stream is, if it is one: whether lines may be drawn over one another there, and how large it is.

use crate::screen::Size;
use shoal_runtime::host::output::Stream;

/// What is taken for the size of a terminal that does not say.
const USUAL: Size = Size { columns: 80, rows: 24 };

/// Whether the cursor can be moved on a stream.
pub fn is_drawn(stream: Stream) -> bool {
    stream.is_terminal() && std::env::var("TERM").is_ok_and(|term| !term.is_empty() && term != "dumb")
}

/// How large a stream's terminal is at this moment.
pub fn size(stream: Stream) -> Size {
    let (columns, rows) = stream.window().unwrap_or_default();
    let or = |told: u16, usual: usize| if told == 0 { usual } else { told.into() };
    Size { columns: or(columns, USUAL.columns), rows: or(rows, USUAL.rows) }
}
