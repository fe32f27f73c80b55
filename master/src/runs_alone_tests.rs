//! Tests of positions that are leased by themselves.

use super::*;

/// Positions 0, 20 and 21 are withheld.
fn withheld() -> Runs {
    let mut runs = runs();
    runs.withhold(vec![0..1, 20..22]);
    runs
}
fn alone(runs: &mut Runs, trainer: Incarnation, said: &Said) -> Option<u64> {
    let grant = runs.lease_alone(trainer, 2, at(0), &|_| true, said)?;
    assert_eq!(grant.count, 1);
    Some(grant.first)
}

#[test]
fn withheld_positions_are_in_no_run_and_go_out_one_at_a_time_to_who_has_nothing_in_hand() {
    let mut runs = withheld();
    let mut leased = Vec::new();
    for number in 0..200 {
        let trainer = Incarnation(number % 2 + 1);
        if let Some(grant) = take(&mut runs, trainer, 2, number, &nothing()) {
            leased.extend(grant.first..grant.first + u64::from(grant.count));
            assert_eq!(alone(&mut runs, trainer, &nothing()), None, "it has something in hand");
            runs.progress(trainer, &[pushed(grant)], at(number));
        }
    }
    leased.sort_unstable();
    let rest: Vec<u64> = (0..64).filter(|position| ![0, 20, 21].contains(position)).collect();
    assert_eq!(leased, rest);
    assert_eq!(runs.lease_alone(A, 2, at(200), &|_| false, &nothing()), None, "it may have none");
    assert_eq!(alone(&mut runs, A, &nothing()), Some(0));
    assert_eq!(alone(&mut runs, B, &nothing()), Some(20));
    runs.lose(A, &nothing());
    assert_eq!(alone(&mut runs, C, &nothing()), Some(0));
    runs.hand_back(B, &nothing());
    assert_eq!(alone(&mut runs, B, &applied(20, [20])), Some(21), "what all have applied is nobody's");
    assert_eq!(alone(&mut runs, A, &unheard()), None);
}

#[test]
fn an_announcement_renews_what_is_leased_by_itself() {
    let mut runs = withheld();
    let grant = runs.lease_alone(A, 2, at(0), &|_| true, &nothing()).unwrap();
    runs.attend(B, grant.lease, at(500));
    assert_eq!(runs.next_deadline(), Some(TTL), "another's");
    runs.attend(A, grant.lease, at(500));
    assert_eq!(runs.next_deadline(), Some(at(500) + TTL));
}
