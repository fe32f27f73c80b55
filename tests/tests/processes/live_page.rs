//! The live page as a person has it, in a browser: buttons break the demo, and in the end two hashes are the same. Without chromium and its
//! driver the tests of the browser say so and pass, or fail when `SHOAL_REQUIRE_ALL=1`.

use serde_json::Value;
use shoal_tests::browser::{Browser, ask, missing, pause};
use shoal_tests::processes::{Job, closing, pack_digits, programs};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::Instant;

/// How long is waited for what is to be on a page.
const PATIENCE: Duration = Duration::from_secs(120);

/// A browser as wide as that; none where none can be had.
fn browser(width: u32) -> Option<Browser> {
    if let Some(why) = missing() {
        eprintln!("NOT TESTED: {why}");
        assert_ne!(std::env::var("SHOAL_REQUIRE_ALL").as_deref(), Ok("1"), "{why}");
        return None;
    }
    Some(Browser::start(width, 1200).unwrap())
}

/// The first that a look gives, a tenth of a second after each other; none if none comes in time.
fn first<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if let Some(found) = look() {
            return Some(found);
        }
        pause().unwrap();
    }
    None
}

/// Starts a command that serves a page, and reads where. What it says later is read, too, so that it never waits.
fn served(mut command: Command) -> (Child, String) {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    let address = loop {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it says of no page");
        if let Some(at) = line.find("http://") {
            break line[at..].trim().to_owned();
        }
    };
    std::thread::spawn(move || drop(said.read_to_end(&mut Vec::new())));
    (child, address)
}

/// Port and token.
fn parts(address: &str) -> (u16, String) {
    let (place, token) = address.split_once("/?token=").unwrap();
    (place.rsplit(':').next().unwrap().parse().unwrap(), token.to_owned())
}

fn frame(address: &str) -> anyhow::Result<Value> {
    let (port, token) = parts(address);
    Ok(serde_json::from_str(&ask(port, "GET /frame", &format!("Authorization: Bearer {token}\r\n"), "")?)?)
}

/// Presses the first button whose label begins so, again and again until what the page answers has `expected`: the one that was meant may
/// have gone meanwhile. Returns the answer.
fn press(browser: &Browser, label: &str, expected: &str) -> String {
    let click = "const all = [...document.querySelectorAll('button:not(:disabled)')];
        const one = all.find((node) => (node.getAttribute('aria-label') || '').startsWith(arguments[0]));
        if (one) { document.getElementById('answer').textContent = '…'; one.click(); }
        return Boolean(one);";
    let read = "return document.getElementById('answer').textContent";
    let (mut answer, mut looks) = (String::new(), 0..);
    let found = first(|| {
        if looks.next()? % 20 == 0 && browser.run(click, label).unwrap() == true {
            answer = "…".to_owned();
        }
        if answer == "…" {
            answer = browser.run(read, "").unwrap().as_str().unwrap().to_owned();
        }
        answer.contains(expected).then(|| answer.clone())
    });
    found.unwrap_or_else(|| panic!("{label} was not done: {answer:?}"))
}

fn wait_for(browser: &Browser, what: &str, script: &str) -> Value {
    let found =
        first(|| Some(browser.run(script, "").unwrap()).filter(|value| !value.is_null() && value != false));
    found.unwrap_or_else(|| {
        panic!("{what} is not on the page: {}", browser.run("return document.body.innerText", "").unwrap())
    })
}

#[test]
fn a_demo_that_is_broken_by_hand_shows_two_hashes_that_are_the_same() {
    let Some(browser) = browser(1400) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(programs().unwrap().shoal);
    command.current_dir(folder.path()).args(["demo", "--ui", "--json"]);
    let (child, address) = served(command);
    browser.open(&address).unwrap();
    wait_for(&browser, "a trainer", "return document.querySelectorAll('.lane .bar-trainer').length > 1");

    press(&browser, "kill trainer-", "is killed");
    let frozen = press(&browser, "freeze trainer-", "is frozen");
    let name = frozen.split_once(" is frozen").unwrap().0.to_owned();
    wait_for(&browser, "the freeze", "return document.querySelector('.lane rect[fill]') !== null");
    press(&browser, &format!("thaw {name}"), "goes on");
    press(&browser, "add a trainer", "trainers are wanted now");
    press(&browser, "move the blocks of pserver-", "another pserver comes");

    wait_for(
        &browser,
        "the end",
        "return document.body.dataset.phase === 'done' && document.getElementById('sign')",
    );
    let shown = "return [document.getElementById('sign').textContent, ...[...document.querySelectorAll('.hash code')].map((node) => node.textContent)]";
    let shown = browser.run(shown, "").unwrap();
    let closed = closing(&child.wait_with_output().unwrap()).unwrap();
    assert_eq!((&closed["ok"], &closed["records_wrong"]), (&true.into(), &0.into()), "{closed}");
    let hash = &closed["parameters_sha256"];
    assert_eq!(
        shown,
        Value::from(vec![Value::from("="), hash.clone(), closed["undisturbed_sha256"].clone()])
    );
    let events = browser.run("return document.getElementById('events').innerText", "").unwrap();
    let events = events.as_str().unwrap();
    for word in ["kill -9 by hand", "SIGSTOP by hand", "SIGCONT", "trainers by hand", "in its place, by hand"]
    {
        assert!(events.contains(word), "{word}: {events}");
    }
    let drawn = browser.run("return Number(document.body.dataset.drawMillis)", "").unwrap();
    assert!(drawn.as_f64().is_some_and(|millis| millis > 0.0), "{drawn}");
    is_shown_again(&browser, folder.path());
}

/// What the page shows of the run once more, from its folder, on a phone's width; nothing is wider than it.
fn is_shown_again(browser: &Browser, folder: &Path) {
    let mut command = Command::new(programs().unwrap().shoal);
    command.current_dir(folder).args(["ui", "--run", "runs/demo/elastic"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut again = command.spawn().unwrap();
    let mut address = String::new();
    BufReader::new(again.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let phone = self::browser(390).unwrap();
    for browser in [browser, &phone] {
        browser.open(address.trim()).unwrap();
        wait_for(browser, "the end", "return document.body.dataset.phase === 'done'");
        assert_eq!(
            browser.run("return document.querySelectorAll('button').length", "").unwrap(),
            0,
            "it only looks"
        );
        let over = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert_eq!(browser.run(over, "").unwrap(), 0, "something is wider than the window");
    }
    again.kill().unwrap();
    again.wait().unwrap();
}

/// The first frame with losses and two trainers, beyond the first evaluation.
fn seen_while_it_trains(address: &str) -> Value {
    let mut latest = Value::Null;
    let found = first(|| {
        match frame(address) {
            Ok(now) => latest = now,
            Err(error) => panic!("{error:#}, and what is looked for was not in {latest}"),
        }
        let is_it = latest["curves"]["loss"].is_array()
            && latest["numbers"]["trainers"] == 2
            && latest["progress"]["step"].as_u64() > Some(20);
        is_it.then(|| latest.clone())
    });
    found.unwrap_or_else(|| panic!("what is looked for is not in {latest}"))
}

/// Without a browser: what programs read of a page, of a run under way and of the same one when it is over.
#[test]
fn a_page_tells_of_a_run_while_it_trains_and_from_its_folder_afterwards() {
    let (programs, folder) = (programs().unwrap(), tempfile::tempdir().unwrap());
    let data = pack_digits(&programs, &folder.path().join("data")).unwrap();
    let evaluated = data.replace("train-*", "test-*");
    let more =
        ["--ui", "--epochs", "3", "--pace-millis", "25", "--folder", "run", "--checkpoint-steps", "10"];
    let evaluates = ["--eval-steps", "20", "--eval-data", evaluated.as_str(), "--replicas", "1"];
    let job = Job {
        programs: &programs,
        folder: folder.path(),
        program: &programs.digits,
        data: &data,
        trainers: "2",
        pservers: 2,
        more: more.iter().chain(&evaluates).map(|word| (*word).to_owned()).collect(),
        hyper: Vec::new(),
    };
    let (child, address) = served(job.command());
    let (port, _) = parts(&address);
    assert!(ask(port, "GET /frame", "", "").unwrap().contains("token"), "nobody gets it without");
    let seen = seen_while_it_trains(&address);
    assert_eq!((&seen["phase"], &seen["numbers"]["pservers"]), (&"training".into(), &2.into()), "{seen}");
    assert_eq!(seen["metrics"]["curves"][0]["name"], "accuracy");
    let closed = closing(&child.wait_with_output().unwrap()).unwrap();

    let mut command = Command::new(&programs.shoal);
    command.current_dir(folder.path()).args(["ui", "--run", "run"]).stdin(Stdio::null());
    let mut again = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut address = String::new();
    BufReader::new(again.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let over = first(|| Some(frame(address.trim()).unwrap()).filter(|over| !over["conclusion"].is_null()));
    let over = over.expect("it does not tell how the run ended");
    again.kill().unwrap();
    again.wait().unwrap();
    assert_eq!((&over["phase"], &over["progress"]["step"]), (&"done".into(), &closed["steps"]), "{over}");
    assert_eq!(over["conclusion"]["hashes"][0]["sha256"], closed["parameters_sha256"]);
    let losses = over["curves"]["loss"].as_array().unwrap();
    assert!(losses.last().unwrap().as_f64() < losses.iter().find_map(Value::as_f64), "{losses:?}");

    let output = Command::new(&programs.shoal).args(["ui", "--run", "nowhere"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("nowhere is no run's folder"), "{said}");
    let mut command = Command::new(&programs.shoal);
    let output =
        command.args(["run", "--hands-on", "--data", &data, "--"]).arg(&programs.digits).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("--hands-on goes with --ui"), "{said}");
}
