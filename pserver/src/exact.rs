//! The check that this thread's f32 arithmetic is the one the protocol's bits are made of.
//!
//! A library in the process may have set flush-to-zero, denormals-are-zero or another rounding for speed. This file
//! finds that out and says so; it must never change the control register itself.

use std::hint::black_box;

/// Why arithmetic on this thread would change the bits of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "f32 arithmetic on this thread {what}, which would change the bits of the model: \
     find the library or compiler flag (fast-math) that set this and turn it off"
)]
pub struct InexactArithmetic {
    what: &'static str,
}

/// Refuses a thread whose arithmetic is not plain IEEE f32. A few nanoseconds: call it on every thread that computes.
pub fn assert_exact_arithmetic() -> Result<(), InexactArithmetic> {
    match fault(|a, b| black_box(a) * black_box(b), |a, b| black_box(a) + black_box(b)) {
        Some(what) => Err(InexactArithmetic { what }),
        None => Ok(()),
    }
}

fn fault(multiply: impl Fn(f32, f32) -> f32, add: impl Fn(f32, f32) -> f32) -> Option<&'static str> {
    let smallest = f32::from_bits(1);
    let half_unit = f32::EPSILON / 2.0;
    if multiply(f32::MIN_POSITIVE, 0.5).to_bits() != 1 << 22 {
        return Some("flushes subnormal results to zero");
    }
    if multiply(smallest, 1.7014118e38).to_bits() != f32::from_bits(0x3480_0000).to_bits() {
        return Some("reads subnormals as zero");
    }
    let ties_to_even = add(1.0, half_unit) == 1.0
        && add(-1.0, -half_unit) == -1.0
        && add(1.0 + f32::EPSILON, half_unit) == 1.0 + 2.0 * f32::EPSILON;
    if !ties_to_even {
        return Some("does not round to nearest");
    }
    let contracts = multiply(f32::MAX, 2.0).is_finite();
    contracts.then_some("keeps more than 24 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flushed(x: f32) -> f32 {
        if x.is_subnormal() { 0.0 } else { x }
    }

    #[test]
    fn this_thread_is_exact() {
        assert_eq!(assert_exact_arithmetic(), Ok(()));
    }

    #[test]
    fn flushed_results_and_flushed_operands_are_told_apart() {
        let plain = |a: f32, b: f32| a + b;
        assert_eq!(fault(|a, b| flushed(a * b), plain), Some("flushes subnormal results to zero"));
        assert_eq!(fault(|a, b| flushed(a) * flushed(b), plain), Some("reads subnormals as zero"));
    }

    #[test]
    fn rounding_towards_zero_and_upwards_are_found() {
        let multiply = |a: f32, b: f32| a * b;
        let toward_zero = |a: f32, b: f32| {
            let exact = f64::from(a) + f64::from(b);
            let near = exact as f32;
            if f64::from(near).abs() > exact.abs() { f32::from_bits(near.to_bits() - 1) } else { near }
        };
        let upward = |a: f32, b: f32| {
            let exact = f64::from(a) + f64::from(b);
            let near = exact as f32;
            if f64::from(near) < exact { near.next_up() } else { near }
        };
        assert_eq!(fault(multiply, toward_zero), Some("does not round to nearest"));
        assert_eq!(fault(multiply, upward), Some("does not round to nearest"));
    }
}
