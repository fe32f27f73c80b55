//! Members as they are drawn: few as lanes over time, many as one cell each. Pure.

use serde_json::{Value, json};
use shoal_runner::report::Member;
use shoal_runtime::wire::proto::StatusReply;
use std::collections::{BTreeMap, BTreeSet};

/// Members that get a lane; the living first, then those that went last.
const LANES_MAX: usize = 40;

/// How members are, as `lanes` (those that get one, and how many do not) and, where there are more trainers than lanes, `cells`: a letter
/// for each trainer, in the order of their names, and what the letters mean.
pub(crate) fn json(members: &[Member], status: Option<&StatusReply>, cut: &BTreeSet<String>) -> Value {
    let trainers =
        status.map_or(0, |status| status.trainers.iter().filter(|one| one.state == "live").count());
    let is_crowd = trainers > LANES_MAX;
    let mut shown: Vec<&Member> =
        members.iter().filter(|member| !is_crowd || member.role != "trainer").collect();
    let all = shown.len();
    shown.sort_by(|one, other| {
        let gone = |member: &Member| (!member.end.is_empty(), -member.to_seconds);
        gone(one).partial_cmp(&gone(other)).unwrap_or(std::cmp::Ordering::Equal)
    });
    shown.truncate(LANES_MAX);
    shown.sort_by_key(|member| (order(&member.role), numbered(&member.name), member.process));
    let tasks = tasks(status);
    let lane = |member: &&Member| {
        json!({
            "role": member.role, "name": member.name, "pid": member.process, "from": rounded(member.from_seconds),
            "to": (!member.end.is_empty()).then(|| rounded(member.to_seconds)), "end": member.end,
            "frozen": member.frozen.iter().map(|(from, to)| json!([rounded(*from), to.is_finite().then(|| rounded(*to))])).collect::<Vec<_>>(),
            "tasks": tasks.get(member.name.as_str()), "cut": cut.contains(&member.name),
        })
    };
    let lanes: Vec<Value> = shown.iter().map(lane).collect();
    let cells = is_crowd.then(|| status.map(cells)).flatten();
    json!({ "lanes": lanes, "more": all - shown.len(), "cells": cells })
}

/// Tasks in hand of each live trainer.
fn tasks(status: Option<&StatusReply>) -> BTreeMap<&str, u32> {
    let trainers = status.into_iter().flat_map(|status| &status.trainers).filter(|one| one.state == "live");
    trainers.map(|trainer| (trainer.name.as_str(), trainer.tasks_in_hand)).collect()
}

/// `b` has tasks in hand, `i` has none.
fn cells(status: &StatusReply) -> Value {
    let mut trainers: Vec<_> = status.trainers.iter().filter(|one| one.state == "live").collect();
    trainers.sort_by_key(|trainer| numbered(&trainer.name));
    let letters: String =
        trainers.iter().map(|trainer| if trainer.tasks_in_hand > 0 { 'b' } else { 'i' }).collect();
    let busy = letters.matches('b').count();
    json!({ "letters": letters, "busy": busy, "idle": letters.len() - busy })
}

fn order(role: &str) -> u8 {
    match role {
        "master" => 0,
        "pserver" => 1,
        _ => 2,
    }
}

/// trainer-10 comes after trainer-9.
fn numbered(name: &str) -> (String, u64) {
    let digits = name.len() - name.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
    let (stem, number) = name.split_at(name.len() - digits);
    (stem.to_owned(), number.parse().unwrap_or(0))
}

/// To a hundredth of a second.
pub(crate) fn rounded(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::wire::proto::TrainerStatus;

    fn member(role: &str, number: u32, end: &str) -> Member {
        Member {
            name: format!("{role}-{number}"),
            role: role.to_owned(),
            process: number,
            from_seconds: 1.0,
            to_seconds: f64::from(number),
            frozen: vec![(2.0, f64::INFINITY)],
            end: end.to_owned(),
        }
    }

    fn names(shown: &Value) -> Vec<&str> {
        shown["lanes"].as_array().unwrap().iter().map(|lane| lane["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn the_living_and_the_newest_of_the_gone_get_a_lane_in_the_order_of_their_names() {
        let mut members: Vec<Member> = (0..60).map(|number| member("trainer", number, "killed")).collect();
        members.extend([member("trainer", 100, ""), member("pserver", 0, ""), member("trainer", 60, "")]);
        let shown = json(&members, None, &BTreeSet::new());
        let names = names(&shown);
        assert_eq!(
            (names.len(), &names[..2], shown["more"].as_u64()),
            (40, &["pserver-0", "trainer-23"][..], Some(23))
        );
        assert_eq!(names[38..], ["trainer-60", "trainer-100"]);
        assert_eq!(shown["lanes"][0]["frozen"], json!([[2.0, null]]), "frozen still");
        assert_eq!((&shown["lanes"][0]["to"], &shown["lanes"][1]["to"]), (&Value::Null, &23.0.into()));
    }

    #[test]
    fn a_thousand_trainers_are_a_letter_each() {
        let trainer = |number: u32| TrainerStatus {
            name: format!("trainer-{number}"),
            state: "live".to_owned(),
            tasks_in_hand: u32::from(number < 998),
            ..Default::default()
        };
        let status = StatusReply { trainers: (0..1000).rev().map(trainer).collect(), ..Default::default() };
        let members: Vec<Member> = (0..1000).map(|number| member("trainer", number, "")).collect();
        let shown =
            json(&[members, vec![member("pserver", 0, "")]].concat(), Some(&status), &BTreeSet::new());
        let letters = shown["cells"]["letters"].as_str().unwrap();
        assert_eq!((letters.len(), &letters[996..], &shown["cells"]["idle"]), (1000, "bbii", &2.into()));
        assert_eq!(names(&shown), ["pserver-0"]);
        assert!(shown.to_string().len() < 2_000);
    }
}
