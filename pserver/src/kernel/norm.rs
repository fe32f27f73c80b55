//! Sums of squares in a fixed order, for the global norm.
//!
//! Element `i` belongs to lane `i % LANES`; a lane adds its elements up in order, and lanes are added in pairs, as a tree.
//! So the bits depend on where an element stands, and on nothing that computes them.

/// As many f64 as keep a processor's adders busy.
const LANES: usize = 32;

/// A sum of squares under way.
#[derive(Clone, Copy, Debug)]
pub struct SquareSum {
    lanes: [f64; LANES],
    next: usize,
}

impl SquareSum {
    /// Of nothing.
    pub fn new() -> SquareSum {
        SquareSum { lanes: [0.0; LANES], next: 0 }
    }

    /// Adds more elements.
    pub fn add(&mut self, values: &[f32]) {
        let (head, rest) = values.split_at(values.len().min((LANES - self.next) % LANES));
        for value in head {
            self.add_one(*value);
        }
        let (whole, tail) = rest.as_chunks::<LANES>();
        for chunk in whole {
            for (lane, value) in self.lanes.iter_mut().zip(chunk) {
                *lane += f64::from(*value) * f64::from(*value);
            }
        }
        for value in tail {
            self.add_one(*value);
        }
    }

    fn add_one(&mut self, value: f32) {
        self.lanes[self.next] += f64::from(value) * f64::from(value);
        self.next = (self.next + 1) % LANES;
    }

    /// The sum of all lanes.
    pub fn total(&self) -> f64 {
        let mut lanes = self.lanes;
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                lanes[lane] += lanes[lane + width];
            }
            width /= 2;
        }
        lanes[0]
    }
}

impl Default for SquareSum {
    fn default() -> SquareSum {
        SquareSum::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: usize) -> Vec<f32> {
        (0..count).map(|at| libm::sinf(at as f32 * 1.7) * 1e3).collect()
    }

    #[test]
    fn the_sum_does_not_depend_on_the_pieces_in_which_elements_come() {
        for count in [0, 1, 31, 32, 33, 100, 1000] {
            let values = values(count);
            let mut whole = SquareSum::new();
            whole.add(&values);
            for cut in 0..=count {
                let mut parts = SquareSum::new();
                parts.add(&values[..cut]);
                parts.add(&values[cut..]);
                assert_eq!(parts.total().to_bits(), whole.total().to_bits(), "{count} cut at {cut}");
            }
        }
    }

    #[test]
    fn the_sum_is_that_of_the_squares() {
        let values = values(1000);
        let exact: f64 = values.iter().map(|value| f64::from(*value) * f64::from(*value)).sum();
        let mut sum = SquareSum::new();
        sum.add(&values);
        assert!((sum.total() - exact).abs() < 1e-12 * exact);
    }
}
