//! Points of a line, as many as can be seen and as they are joined.

/// Two points for each pixel column is all that can be seen.
const MOST_POINTS: usize = 1_600;

/// Part of a line that has `whole` points, thinned to what can be seen: of each few points the lowest and the highest.
pub fn thinned(points: &[(f64, f64)], whole: usize) -> Vec<(f64, f64)> {
    let few = (2 * whole).div_ceil(MOST_POINTS).max(1);
    if few <= 2 { points.to_vec() } else { points.chunks(few).flat_map(extremes).collect() }
}

/// The lowest and the highest point of a few, in their order: a mean would hide a spike.
fn extremes(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let by_value = |one: &&(f64, f64), other: &&(f64, f64)| one.1.total_cmp(&other.1);
    let (low, high) = (points.iter().min_by(by_value), points.iter().max_by(by_value));
    let mut both: Vec<_> = low.into_iter().chain(high).copied().collect();
    both.sort_by(|one, other| one.0.total_cmp(&other.0));
    both.dedup();
    both
}

/// Corners of the line of a value that holds until the next point, and the last one until `end`.
pub fn steps(points: impl IntoIterator<Item = (f64, f64)>, end: f64) -> Vec<(f64, f64)> {
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for (x, y) in points {
        match corners.last() {
            Some((_, level)) if *level == y => {}
            Some((_, level)) => corners.extend([(x, *level), (x, y)]),
            None => corners.push((x, y)),
        }
    }
    if let Some((_, level)) = corners.last().copied() {
        corners.push((end, level));
    }
    corners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spike_among_many_points_is_seen() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|at| (f64::from(at), 1.0)).collect();
        points[77_777].1 = 9.0;
        let thinned = thinned(&points, points.len());
        assert!(thinned.len() <= MOST_POINTS && thinned.contains(&(77_777.0, 9.0)), "{}", thinned.len());
        assert_eq!((thinned.first(), thinned.last()), (points.first(), points.last()));
        assert!(thinned.is_sorted_by(|one, other| one.0 < other.0));
        assert_eq!(super::thinned(&points[..9], 9), points[..9]);
    }

    #[test]
    fn a_value_holds_until_the_next_and_the_last_until_the_end() {
        let points = [(0.0, 2.0), (1.0, 2.0), (3.0, 4.0)];
        assert_eq!(steps(points, 5.0), [(0.0, 2.0), (3.0, 2.0), (3.0, 4.0), (5.0, 4.0)]);
        assert_eq!(steps([(1.0, 2.0)], 1.0), [(1.0, 2.0), (1.0, 2.0)]);
        assert_eq!(steps([], 5.0), []);
    }
}
