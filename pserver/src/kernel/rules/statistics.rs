//! What is counted or averaged rather than learnt. No learning rate, and no scale of one. Slots: none, or what rounding leaves out of
//! a counter.

use super::Pass;

/// `decay * w + (1 - decay) * g`, where `g` is the mean of the step.
#[inline(always)]
pub(super) fn ema(pass: Pass, decay: f32, parameters: &[f32], values: &mut [f32]) {
    let rest = 1.0 - decay;
    for (parameter, value) in parameters.iter().zip(values) {
        *value = decay * *parameter + rest * pass.mean(*value);
    }
}

/// `w + sum`: the sum is not divided by the weight. Value and remainder are together the running sum with some 48 bits: an f32 alone
/// stands still once a step's share is below half of its last bit.
#[inline(always)]
pub(super) fn sum(parameters: &[f32], values: &mut [f32], remainders: &mut [f32]) {
    for ((parameter, value), remainder) in parameters.iter().zip(values).zip(remainders) {
        let (sum, lost) = two_sum(*parameter, *value);
        let (total, left) = two_sum(sum, lost + *remainder);
        // Of what is too large for an f32 nothing is left over.
        let is_finite = total.is_finite();
        *value = if is_finite { total } else { sum };
        *remainder = if is_finite { left } else { 0.0 };
    }
}

/// The rounded sum, and exactly what its rounding left out (Knuth 1998, TAOCP 2, 4.2.2, theorem B).
#[inline(always)]
fn two_sum(a: f32, b: f32) -> (f32, f32) {
    let sum = a + b;
    let of_b = sum - a;
    let of_a = sum - of_b;
    (sum, (a - of_a) + (b - of_b))
}

/// `w + sum` without a remainder: an evaluation begins at zero. What is no number has the same bits whoever found it, for the model's
/// hash is over metrics too.
#[inline(always)]
pub(super) fn metric(parameters: &[f32], values: &mut [f32]) {
    for (parameter, value) in parameters.iter().zip(values) {
        let sum = *value + *parameter;
        *value = if sum.is_nan() { f32::NAN } else { sum };
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::{Trial, WEIGHT, error};
    use super::super::{Pass, run};
    use proptest::prelude::*;
    use shoal_runtime::cluster::Rule;

    /// A counter's value and remainder after these shares, one an update.
    fn counted(from: (f32, f32), shares: impl IntoIterator<Item = f32>) -> (f32, f32) {
        let (mut value, mut remainder) = ([from.0], [from.1]);
        for share in shares {
            let mut next = [share];
            super::sum(&value, &mut next, &mut remainder);
            value = next;
        }
        (value[0], remainder[0])
    }

    fn exact((value, remainder): (f32, f32)) -> f64 {
        f64::from(value) + f64::from(remainder)
    }

    #[test]
    fn a_counter_goes_on_where_a_share_is_below_half_of_its_last_bit() {
        for (from, share) in [(24, 1.0), (29, 32.0), (29, 1.0), (40, 1.0)] {
            let from = libm::ldexp(1.0, from);
            let counted = counted((from as f32, 0.0), std::iter::repeat_n(share, 1 << 16));
            let expected = from + 65_536.0 * f64::from(share);
            assert_eq!((exact(counted), counted.0), (expected, expected as f32), "{from} and {share}");
        }
    }

    #[test]
    fn what_is_too_large_for_a_counter_is_infinite_and_never_no_number() {
        let (most, half) = (f32::MAX, f32::MAX / 2.0);
        assert_eq!(counted((most, 0.0), [most]), (f32::INFINITY, 0.0));
        assert_eq!(counted((-most, -1e20), [-half, half]), (f32::NEG_INFINITY, 0.0));
        assert_eq!(counted((half, 0.0), [half, -half, -half]), (0.0, 0.0));
        assert!(counted((0.0, 0.0), [f32::INFINITY, f32::NEG_INFINITY]).0.is_nan());
    }

    proptest! {
        #[test]
        fn whole_numbers_are_counted_as_a_u64_counts_them(
            start in 0u64..1 << 46, shares in prop::collection::vec(0u32..1 << 24, 1..200)
        ) {
            let from = (start as f32, (start as i64 - (start as f32) as i64) as f32);
            let total = shares.iter().fold(start, |total, share| total + u64::from(*share));
            let counted = counted(from, shares.iter().map(|share| *share as f32));
            prop_assert_eq!(exact(counted) as u64, total);
            prop_assert_eq!(counted.0, total as f32);
        }

        #[test]
        fn losses_are_added_up_as_by_an_f64(
            shares in prop::collection::vec(-1e3f32..1e3, 1..2000), size in 0i32..60
        ) {
            let from = libm::ldexpf(1.0, size);
            let total = shares.iter().fold(f64::from(from), |total, share| total + f64::from(*share));
            let counted = counted((from, 0.0), shares.iter().copied());
            let most = shares.iter().map(|share| share.abs()).fold(from, f32::max);
            prop_assert!((exact(counted) - total).abs() <= f64::from(most) * 2000.0 * libm::ldexp(1.0, -46));
        }
    }

    #[test]
    fn ema_follows_its_reference() {
        let decay = f64::from(0.97f32);
        // A rate, to see that it is not looked at.
        let trial = Trial::new(Rule::Ema { decay: 0.97 }, 0.3);
        let worst = error(trial, |_| (), |(), now| decay * now.w + (1.0 - decay) * now.g);
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn sum_follows_its_reference_and_ignores_weight_and_rate() {
        let trial = Trial { pull: 0.0, ..Trial::new(Rule::Sum, 0.3) };
        let worst = error(trial, |_| (), |(), now| now.w + now.g * f64::from(WEIGHT));
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn staleness_scales_neither_counts_nor_statistics() {
        for rule in [Rule::Sum, Rule::Ema { decay: 0.5 }] {
            let made = [1.0, 0.25].map(|scale| {
                let (mut values, mut slot) = ([6.0], [0.0]);
                let mut slots = vec![slot.as_mut_slice()];
                slots.truncate(rule.slots().len());
                let pass = Pass { weight: 2.0, rate: 0.1, scale, weight_decay: 0.0, update: 1 };
                run(rule, pass, &[1.0], &mut values, &mut slots);
                values
            });
            assert_eq!(made[0], made[1], "{rule:?}");
        }
    }
}
