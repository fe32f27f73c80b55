//! The limit: rows in one flat array, at places that are known. No index, no keys, no versions.
//!
//! Rows are whole cache lines. The lines of a batch are all touched before the first of its rows is worked on, so that
//! misses are under way together: what a prefetch does, without unsafe code.

use std::hint::black_box;

/// Rows whose misses overlap.
const BATCH: usize = 32;
/// f32 values of a cache line.
const LINE: usize = 16;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LINE]);

/// Rows of an embedding and as many values of rule state.
pub(crate) struct Flat {
    lines: Vec<Line>,
    /// Lines of an embedding.
    width: usize,
}

impl Flat {
    /// So many rows of `dimension` values, a multiple of 16, and their state; every page is written.
    pub(crate) fn new(rows: usize, dimension: usize) -> Flat {
        let width = dimension / LINE;
        let line = |at: usize| Line([1.0 + at as f32; LINE]);
        Flat { lines: (0..2 * width * rows).map(line).collect(), width }
    }

    /// How many rows.
    pub(crate) fn rows(&self) -> usize {
        self.lines.len() / (2 * self.width)
    }

    fn touch(&self, rows: &[u32], lines: usize) {
        let stride = 2 * self.width;
        let touched = rows.iter().flat_map(|row| &self.lines[*row as usize * stride..][..lines]);
        black_box(touched.fold(0.0, |sum, line| sum + line.0[0]));
    }

    /// The embeddings of these rows, one after the other.
    pub(crate) fn gather(&self, rows: &[u32]) -> Vec<f32> {
        let mut gathered = Vec::with_capacity(rows.len() * self.width * LINE);
        for batch in rows.chunks(BATCH) {
            self.touch(batch, self.width);
            for row in batch {
                let lines = &self.lines[*row as usize * 2 * self.width..][..self.width];
                lines.iter().for_each(|line| gathered.extend_from_slice(&line.0));
            }
        }
        gathered
    }

    /// Adagrad on these rows, by gradients one after the other.
    pub(crate) fn scatter(&mut self, rows: &[u32], gradients: &[f32]) {
        let width = self.width;
        for (batch, gradients) in rows.chunks(BATCH).zip(gradients.chunks(BATCH * width * LINE)) {
            self.touch(batch, 2 * width);
            for (row, gradient) in batch.iter().zip(gradients.chunks(width * LINE)) {
                let lines = &mut self.lines[*row as usize * 2 * width..][..2 * width];
                let (embedding, squares) = lines.split_at_mut(width);
                let lines = embedding.iter_mut().zip(squares).zip(gradient.chunks(LINE));
                lines.for_each(|((embedding, squares), gradient)| adagrad(embedding, squares, gradient));
            }
        }
    }
}

/// Duchi, Hazan and Singer 2011, as the pserver's rule has it.
fn adagrad(embedding: &mut Line, squares: &mut Line, gradient: &[f32]) {
    for ((value, square), gradient) in embedding.0.iter_mut().zip(&mut squares.0).zip(gradient) {
        *square += gradient * gradient;
        *value -= 0.05 * gradient / (square.sqrt() + 1e-8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_scattered_is_gathered_and_nothing_else_changes() {
        let mut flat = Flat::new(100, 32);
        let before = flat.gather(&(0..100).collect::<Vec<u32>>());
        let rows: Vec<u32> = (0..40).map(|row| (row * 37) % 100).collect();
        flat.scatter(&rows, &[1.0; 40 * 32]);
        let after = flat.gather(&(0..100).collect::<Vec<u32>>());
        assert_eq!((flat.rows(), before.len()), (100, 3200));
        for row in 0..100 {
            let [before, after] = [&before, &after].map(|all| &all[row * 32..][..32]);
            let is_changed = before.iter().zip(after).all(|(before, after)| before > after);
            let is_same = before == after;
            assert!(if rows.contains(&(row as u32)) { is_changed } else { is_same }, "{row}");
        }
    }
}
