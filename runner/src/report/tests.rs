//! What must hold of every report: nothing is left out, nothing breaks out of its tag, and no input makes it panic.

use super::*;

fn member(name: &str, process: u32, from_seconds: f64, to_seconds: f64, end: &str) -> Member {
    let role = name.split('-').next().unwrap_or_default().to_owned();
    Member {
        name: name.to_owned(),
        role,
        process,
        from_seconds,
        to_seconds,
        frozen: Vec::new(),
        end: end.to_owned(),
    }
}

fn fault(kind: &str, name: &str, at_seconds: f64, what: &str) -> Fault {
    let role = name.split('-').next().unwrap_or_default().to_owned();
    Fault { kind: kind.to_owned(), role, name: name.to_owned(), at_seconds, what: what.to_owned() }
}

/// Trainers 2, 4, 3, 1, 3 over 25 seconds: joins, a leave, a kill, a freeze and a thaw.
fn demo() -> Run {
    let mut members = vec![
        member("trainer-0", 4101, 0.3, 25.0, "ended"),
        member("trainer-1", 4102, 0.4, 13.2, "left"),
        member("trainer-2", 4117, 4.0, 9.1, "killed"),
        member("trainer-3", 4118, 4.2, 25.0, "ended"),
        member("trainer-4", 4133, 18.6, 25.0, "ended"),
        member("pserver-0", 4098, 0.0, 25.0, "ended"),
        member("pserver-1", 4099, 0.0, 16.0, "killed"),
        member("pserver-1", 4140, 16.7, 25.0, "ended"),
    ];
    members[3].frozen.push((14.0, 18.0));
    let faults = vec![
        fault("join", "trainer-2", 4.0, "started as process 4117"),
        fault("join", "trainer-3", 4.2, "started as process 4118"),
        fault("kill", "trainer-2", 9.1, "SIGKILL in the middle of a push; its lease ran out 1.5 s later"),
        fault("leave", "trainer-1", 13.2, "asked to leave; finished its task first"),
        fault("freeze", "trainer-3", 14.0, "SIGSTOP"),
        fault("kill", "pserver-1", 16.0, "SIGKILL; its copy on pserver-0 took over"),
        fault("thaw", "trainer-3", 18.0, "SIGCONT after 4.0 s; its late push was refused"),
        fault("join", "trainer-4", 18.6, "started as process 4133"),
    ];
    let verdict = |text: &str| Verdict { holds: true, text: text.to_owned() };
    Run {
        title: "Shoal demo: digits under churn".to_owned(),
        job: "digits-demo".to_owned(),
        seconds: 25.0,
        steps: 2_880,
        epochs: 12,
        samples: (1..=100).map(demo_sample).collect(),
        members,
        faults,
        metrics: Vec::new(),
        excluded: Vec::new(),
        verdicts: vec![
            verdict("✔ 1,498/1,498 records counted exactly once in each of 12 epochs"),
            verdict("✔ parameters sha256 9f2c51d0… = undisturbed 9f2c51d0…"),
            verdict("✔ 288 of 299 digits held out read correctly (96.3 %)"),
        ],
        facts: vec![("Seed".to_owned(), "41".to_owned()), ("Learning rate".to_owned(), "0.01".to_owned())],
        time: Some(Time {
            shares: vec![("compute", 0.62), ("pull", 0.08), ("push", 0.06), ("wait", 0.24)],
            advice: Some("compute-bound: 62 % of trainers' time is the step function".to_owned()),
        }),
    }
}

fn demo_sample(index: u32) -> Sample {
    let at = f64::from(index) * 0.25;
    let trainers_live = match at {
        at if at < 4.2 => 2,
        at if at < 10.6 => 4,
        at if at < 13.2 => 3,
        at if at < 15.5 => 2,
        at if at < 18.0 => 1,
        at if at < 18.6 => 2,
        _ => 3,
    };
    let wobble = 1.0 + 0.12 * libm::sin(at * 9.0);
    let loss = (0.05 + 2.25 * libm::exp(-at / 3.2)) * wobble;
    Sample {
        at_seconds: at,
        step: u64::from(index) * 28,
        trainers_live,
        loss: (!(16.0..16.6).contains(&at)).then_some(loss),
        records_per_second: 230.0 * f64::from(trainers_live),
    }
}

fn empty() -> Run {
    Run {
        title: String::new(),
        job: String::new(),
        seconds: 0.0,
        steps: 0,
        epochs: 0,
        samples: Vec::new(),
        members: Vec::new(),
        faults: Vec::new(),
        metrics: Vec::new(),
        excluded: Vec::new(),
        verdicts: Vec::new(),
        facts: Vec::new(),
        time: None,
    }
}

/// Whether every tag is closed in order and no bare `<`, `&` or number that is none is left. Enough for what a
/// program writes; not a parser of all XML.
fn assert_balanced(document: &str) {
    let body = document.strip_prefix("<!DOCTYPE html>").unwrap_or(document);
    let mut open: Vec<&str> = Vec::new();
    let mut rest = body;
    while let Some(start) = rest.find('<') {
        assert_text(&rest[..start]);
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        assert!(!tag.contains('<'), "a tag within the tag {tag}");
        assert_eq!(tag.matches('"').count() % 2, 0, "an open quote in {tag}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closed out of order");
        } else if !tag.ends_with('/') {
            open.push(tag.split_whitespace().next().expect("a tag has a name"));
        }
        assert_text(tag);
        rest = &rest[end + 1..];
    }
    assert_text(rest);
    assert!(open.is_empty(), "left open: {open:?}");
}

fn assert_text(text: &str) {
    for (at, _) in text.match_indices('&') {
        let name = text[at + 1..].split(';').next().unwrap_or_default();
        assert!(["amp", "lt", "gt", "quot", "#39"].contains(&name), "a bare & in {text}");
    }
    for wrong in ["NaN", "inf\"", "=\"-inf"] {
        assert!(!text.contains(wrong) || !text.contains('='), "{wrong} in {text}");
    }
    assert!(
        !text.chars().any(|character| character < ' ' && !"\t\n\r".contains(character)),
        "control in {text:?}"
    );
}

fn assert_both_balanced(run: &Run) {
    assert_balanced(&svg(run));
    assert_balanced(&html(run));
}

#[test]
fn every_member_and_every_fault_appears_in_both() {
    let run = demo();
    assert_both_balanced(&run);
    for document in [svg(&run), html(&run)] {
        for member in &run.members {
            assert!(document.contains(&format!("process {}:", member.process)), "{} is missing", member.name);
        }
        for fault in &run.faults {
            assert!(document.contains(&format!(">{} {}</text>", fault.kind, fault.name)));
            assert!(document.contains(&fault.what));
        }
    }
}

#[test]
fn verdicts_come_before_the_picture_and_carry_one_mark() {
    let mut run = demo();
    run.verdicts[1].holds = false;
    let page = html(&run);
    assert!(page.find("1,498/1,498") < page.find("<svg"));
    assert_eq!(page[..page.find("<svg").unwrap()].matches('✔').count(), 2);
    assert_eq!(page[..page.find("<svg").unwrap()].matches('✘').count(), 1);
    assert!(svg(&run).contains("1 of 3 checks failed"));
}

#[test]
fn hostile_text_stays_text() {
    let hostile = "</style><script>alert(\"&'\u{1b}\")</script>";
    let mut run = demo();
    run.title = hostile.to_owned();
    run.job = hostile.to_owned();
    run.members.push(member(hostile, 1, 1.0, 2.0, hostile));
    run.members.push(member("trainer-9", 2, 1.0, 20.0, hostile));
    run.faults.push(fault(hostile, hostile, 1.0, hostile));
    run.verdicts.push(Verdict { holds: false, text: hostile.to_owned() });
    run.facts.push((hostile.to_owned(), hostile.to_owned()));
    run.time =
        Some(Time { shares: vec![(hostile, 0.5), ("wait", f64::NAN)], advice: Some(hostile.to_owned()) });
    assert_both_balanced(&run);
    assert!(!html(&run).contains("<script"));
    assert!(html(&run).contains("&lt;/style&gt;&lt;script&gt;alert(&quot;&amp;&#39;\u{fffd}&quot;)"));
}

#[test]
fn a_page_asks_for_nothing_from_outside() {
    let page = html(&demo()).replace("http://www.w3.org/2000/svg", "");
    for request in ["http:", "https:", "src=", "href=", "@import", "<script", "<link"] {
        assert!(!page.contains(request), "{request}");
    }
}

#[test]
fn an_empty_run_is_a_report_all_the_same() {
    assert_both_balanced(&empty());
    assert!(svg(&empty()).contains("no samples were taken"));
    assert!(html(&empty()).contains("Nothing was checked."));
}

#[test]
fn one_member_one_sample_and_no_time_are_drawn() {
    let mut run = empty();
    run.members.push(member("trainer-0", 7, 0.0, 0.0, "killed"));
    run.samples.push(Sample {
        at_seconds: 0.0,
        step: 0,
        trainers_live: 0,
        loss: Some(0.0),
        records_per_second: 0.0,
    });
    run.faults.push(fault("kill", "trainer-0", 0.0, ""));
    assert_both_balanced(&run);
}

#[test]
fn numbers_that_are_none_are_told_and_not_drawn() {
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, 1e300, 1e-300, f64::MAX];
    for at in odd {
        for loss in odd {
            let mut run = demo();
            run.seconds = at;
            run.samples[4].at_seconds = at;
            run.samples[50].loss = Some(loss);
            run.members[0].to_seconds = at;
            run.members[3].frozen.push((at, loss));
            run.faults[0].at_seconds = at;
            assert_both_balanced(&run);
        }
    }
    let mut run = demo();
    run.samples[50].loss = Some(f64::NAN);
    assert!(svg(&run).contains("loss is not a number at 12.8 s"));
}

#[test]
fn a_long_run_with_many_faults_stays_a_picture() {
    let mut run = demo();
    run.seconds = 7_200.0;
    run.samples =
        (0..72_000).map(|index| Sample { at_seconds: f64::from(index) / 10.0, ..demo_sample(9) }).collect();
    run.faults = (0..300).map(|index| fault("kill", "trainer-2", f64::from(index) * 24.0, "again")).collect();
    run.members =
        (0..40).map(|index| member(&format!("trainer-{index}"), index, 0.0, 7_200.0, "ended")).collect();
    let picture = svg(&run);
    assert_balanced(&picture);
    assert!(picture.len() < 300_000, "{} bytes", picture.len());
    assert!(picture.contains("minutes since start"));
}

/// Writes pictures to look at: `SHOAL_REPORT_FOLDER=… cargo test -p shoal-runner report -- --ignored`.
#[test]
#[ignore = "writes files to look at"]
fn pictures_to_look_at() {
    let folder =
        std::path::PathBuf::from(std::env::var_os("SHOAL_REPORT_FOLDER").expect("SHOAL_REPORT_FOLDER"));
    let mut crowded = demo();
    crowded
        .faults
        .extend((0..8).map(|index| fault("freeze", "trainer-0", 24.0 + 0.1 * f64::from(index), "close")));
    crowded.samples[60].loss = Some(f64::NAN);
    crowded.verdicts[1].holds = false;
    for (name, run) in [("demo", demo()), ("crowded", crowded), ("empty", empty())] {
        std::fs::write(folder.join(name).with_extension("svg"), svg(&run)).expect("a folder to write to");
        std::fs::write(folder.join(name).with_extension("html"), html(&run)).expect("a folder to write to");
    }
}

#[test]
fn records_that_were_left_out_are_named_on_the_page_and_a_whole_run_has_no_such_table() {
    assert!(!html(&demo()).contains("Records left out"));
    let (what, why) =
        ("d.csv, chunk 0 at offset 0, record 3 of 4".to_owned(), "\"<b>\" is no number".to_owned());
    let page = html(&Run { excluded: vec![Excluded { what, why, from: 17 }], ..demo() });
    assert_balanced(&page);
    for told in ["Records left out", "record 3 of 4", "&lt;b&gt;", ">17<"] {
        assert!(page.contains(told), "{told}");
    }
}

#[test]
fn every_metric_has_its_panel_and_every_evaluation_its_row() {
    let metric = |name: &str, values: &[Option<f64>]| Metric {
        name: name.to_owned(),
        points: values
            .iter()
            .zip(1..)
            .map(|(value, at)| Point { at_seconds: f64::from(at), step: 10 * at as u64, value: *value })
            .collect(),
    };
    let curves = |run: &Run| svg(run).matches("class=\"s-curve\"").count();
    let (accuracy, odd) =
        (metric("accuracy", &[Some(0.5), Some(0.625), None]), metric("odd <&>", &[None; 3]));
    let run = Run { metrics: vec![accuracy, odd], ..demo() };
    assert_both_balanced(&run);
    assert_eq!(curves(&run), curves(&demo()) + 1, "a curve for what has values");
    let (picture, page) = (svg(&run), html(&run));
    assert!(picture.contains(">accuracy<") && picture.contains(">0.625<"), "{picture}");
    assert!(picture.contains("none of its values is a number"));
    assert!(page.contains("<h2>Evaluations</h2>") && page.contains("odd &lt;&amp;&gt;"));
    for words in [">10<", ">30<", ">0.625<"] {
        assert!(page.contains(words), "{words}");
    }
    assert!(!html(&demo()).contains("Evaluations"));
}
