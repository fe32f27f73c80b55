//! What a page shows, by what a journal and a master have told.

use super::*;
use shoal_runner::report::Fault;
use shoal_runtime::wire::proto::{
    EvaluationStatus, JobSettings, MetricValue, TrainerCounters, TrainerStatus,
};

fn status(step: u64) -> StatusReply {
    let settings = JobSettings { job: "digits-7".to_owned(), epochs: 2, ..Default::default() };
    StatusReply {
        settings: Some(settings),
        phase: "training".to_owned(),
        is_progress_known: true,
        step,
        steps: 100,
        records_trained: 10 * step,
        records_planned: 1000,
        trainers_wanted: 1,
        ..Default::default()
    }
}

fn begun() -> Entry {
    Entry::Begun(Begun::of(&["target/digits".into(), "--fast".into()], &status(0), 100))
}

fn seen(at: f64, step: u64, compute_micros: u64) -> Entry {
    let trainer_totals = Some(TrainerCounters { compute_micros, wait_micros: 1000, ..Default::default() });
    let over = StatusReply { trainer_totals, ..status(step) };
    Entry::Seen(Seen::of(at, &over, &over))
}

fn fault(at_seconds: f64, kind: &str) -> Entry {
    let [kind, role, name, what] = [kind, "trainer", "trainer-0", "by hand"].map(str::to_owned);
    Entry::Fault(Fault { kind, role, name, at_seconds, what })
}

fn view(entries: Vec<Entry>) -> View {
    let mut view = View::new("of-folder".to_owned());
    entries.into_iter().for_each(|entry| view.told(entry));
    view
}

#[test]
fn before_anything_is_told_the_page_waits() {
    let frame = View::new("digits".to_owned()).frame();
    assert_eq!(
        (&frame["job"], &frame["phase"], &frame["is_over"]),
        (&"digits".into(), &"waiting".into(), &false.into())
    );
    assert_eq!(frame["numbers"], Value::Null);
}

#[test]
fn a_run_under_way_is_shown_by_both_its_journal_and_its_master() {
    let joined =
        Entry::Joined { at: 0.5, role: "trainer".to_owned(), name: "trainer-0".to_owned(), process: 7 };
    let mut view =
        view(vec![begun(), joined, seen(5.0, 20, 4_000), seen(15.0, 40, 9_000), fault(15.5, "partition")]);
    view.saw(16.0, status(50));
    let frame = view.frame();
    assert_eq!((&frame["job"], &frame["program"]), (&"digits-7".into(), &"digits --fast".into()));
    let progress = &frame["progress"];
    assert_eq!(
        (&progress["step"], &progress["steps"], &progress["epoch"]),
        (&50.into(), &100.into(), &json!([1, 2]))
    );
    // The last ten seconds' 200 records; 500 are left.
    assert_eq!(
        (progress["records_per_second"].as_f64(), progress["eta_seconds"].as_f64()),
        (Some(20.0), Some(25.0))
    );
    assert_eq!(frame["time"]["lately"], json!([["compute", 1.0]]));
    assert_eq!(frame["time"]["whole"], json!([["compute", 0.9], ["wait", 0.1]]));
    assert_eq!(
        (&frame["members"]["lanes"][0]["name"], &frame["members"]["lanes"][0]["cut"]),
        (&"trainer-0".into(), &true.into())
    );
    assert_eq!(frame["curves"]["steps_per_second"], json!([4.0, 2.0]));
    view.told(fault(16.0, "heal"));
    assert_eq!(view.frame()["members"]["lanes"][0]["cut"], false);
}

#[test]
fn a_master_that_is_away_is_told_of_and_takes_nothing_with_it() {
    let mut view = view(vec![begun(), seen(5.0, 20, 4_000)]);
    view.saw(6.0, status(21));
    view.missed("no answer in time".to_owned());
    let frame = view.frame();
    assert_eq!((&frame["silence"], &frame["progress"]["step"]), (&"no answer in time".into(), &21.into()));
    view.saw(7.0, status(22));
    assert_eq!(view.frame()["silence"], Value::Null);
}

#[test]
fn a_run_that_is_over_stays_as_it_was_and_one_that_goes_on_is_live_again() {
    let closed = Entry::Closed { at: 6.0, how: "failed".to_owned(), why: "no room".to_owned() };
    let mut view = view(vec![begun(), seen(5.0, 20, 4_000), closed]);
    let hash = |of: &str| Hash { of: of.to_owned(), sha256: "00".to_owned() };
    view.concluded(Conclusion { hashes: vec![hash("a"), hash("b")], ..Conclusion::default() });
    let frame = view.frame();
    assert_eq!(
        (&frame["phase"], &frame["why"], &frame["is_over"]),
        (&"failed".into(), &"no room".into(), &true.into())
    );
    assert_eq!(frame["progress"]["step"], 20);
    assert_eq!(frame["conclusion"]["hashes"][1]["of"], "b");
    let again = Begun { wall_seconds: 160, ..Begun::of(&[], &status(20), 160) };
    view.told(Entry::Begun(again));
    view.told(seen(1.0, 30, 9_000));
    let frame = view.frame();
    assert_eq!(
        (&frame["is_over"], &frame["conclusion"], &frame["now"]),
        (&false.into(), &Value::Null, &61.0.into())
    );
}

#[test]
fn of_many_evaluations_the_newest_and_the_best_are_drawn_and_none_that_is_no_number() {
    let evaluation = |at: u64| EvaluationStatus {
        step: 10 * at,
        values: vec![
            MetricValue { name: "accuracy".to_owned(), value: Some(at as f64) },
            MetricValue { name: "auc".to_owned(), value: (at != 999).then_some(f64::NAN) },
        ],
        is_best: at == 500,
        ..Default::default()
    };
    let status = StatusReply { evaluations: (0..1000).map(evaluation).collect(), ..status(50) };
    let shown = metrics(&status);
    let points = shown["curves"][0]["points"].as_array().unwrap();
    assert!((200..=EVALUATIONS_MAX + 1).contains(&points.len()), "{}", points.len());
    assert!(points.contains(&json!([5000, 500.0, true])) && points.contains(&json!([9990, 999.0, false])));
    assert_eq!(shown["curves"][1]["points"], json!([]));
}

#[test]
fn a_frame_of_a_thousand_trainers_after_a_long_time_is_small() {
    let trainer = |number: u32| TrainerStatus {
        name: format!("trainer-{number}"),
        state: "live".to_owned(),
        tasks_in_hand: 1,
        ..Default::default()
    };
    let mut entries = vec![begun()];
    entries.extend((0..1000).map(|process| Entry::Joined {
        at: 0.5,
        role: "trainer".to_owned(),
        name: format!("trainer-{process}"),
        process,
    }));
    entries.extend((0..4_000).map(|at| seen(f64::from(at), at as u64, 0)));
    let mut view = view(entries);
    view.saw(4_000.0, StatusReply { trainers: (0..1000).map(trainer).collect(), ..status(50) });
    let bytes = view.frame().to_string().len();
    assert!(bytes < 40_000, "{bytes} bytes");
}

#[test]
fn of_a_job_that_is_looked_at_from_elsewhere_what_it_had_made_is_no_speed() {
    let view = view(vec![begun(), seen(1e-6, 40, 1_000), seen(1.0, 41, 2_000), seen(2.0, 42, 3_000)]);
    let frame = view.frame();
    assert_eq!(frame["progress"]["records_per_second"], 10.0);
    for (curve, expected) in
        [("records_per_second", [0.0, 10.0, 10.0]), ("steps_per_second", [0.0, 1.0, 1.0])]
    {
        assert_eq!(frame["curves"][curve], json!(expected), "{curve}");
    }
}
