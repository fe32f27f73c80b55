//! The measures of the sheet that every part of the picture shares. Constants only.

/// The picture's width; it is drawn smaller where there is less room.
pub(super) const WIDTH: f64 = 960.0;
/// Between the card's border and anything inside.
pub(super) const MARGIN: f64 = 20.0;
/// The longest name shown in full.
pub(super) const NAME_CHARACTERS: usize = 24;
