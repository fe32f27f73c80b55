//! Figures: SVG pictures, HTML pages, charts over time, tables of text, and the scales and labels in them. It must never load
//! anything (no script, font, style sheet or image), never take markup from a caller's text, and panics on no input. Pure.

#![forbid(unsafe_code)]

pub mod chart;
mod columns;
mod curve;
mod drawing;
mod page;
mod picture;
mod scale;
pub mod text;

pub use columns::aligned;
pub use curve::{steps, thinned};
pub use drawing::{Anchor, Drawing};
pub use page::{Page, table};
pub use picture::Picture;
pub use scale::{Scale, TimeUnit, logarithmic_ticks, tick_text, ticks};
