//! Whether processes of this machine find one another: the loopback address, ports, the machine's name.

use crate::doctor::outcome::{Outcome, millis};
use serde_json::json;

/// Judges a connection of this process with itself over the loopback address: the seconds it took, or why there was none.
pub(crate) fn judge_loopback(found: Result<f64, &str>) -> Outcome {
    match found {
        Ok(seconds) => {
            Outcome::ok(format!("127.0.0.1 listens at a free port and answers in {}", millis(seconds)))
                .with(json!({ "round_trip_seconds": seconds }))
        }
        Err(why) => Outcome::failed(
            format!("127.0.0.1: {why}"),
            "processes of a local run speak over it: ip link set lo up, and see nft list ruleset",
        ),
    }
}

/// Judges the port at which a master listens that is told no other: why it cannot be had, if so.
pub(crate) fn judge_port(port: u16, taken: Option<&str>) -> Outcome {
    match taken {
        None => Outcome::ok(format!(
            "{port} is free; shoal run takes any that is free, shoal master takes it by default"
        )),
        Some(why) => Outcome::warning(
            format!("{port}: {why}; shoal run takes any that is free"),
            format!("for shoal master give --listen another; who has it says ss -ltnp sport = :{port}"),
        ),
    }
    .with(json!({ "port": port, "is_free": taken.is_none() }))
}

/// Judges the machine's name, by the addresses that it has or why it has none.
pub(crate) fn judge_name(name: &str, found: Result<&[String], &str>) -> Outcome {
    let advice = format!(
        "processes of other machines ask for it: echo \"ADDRESS {name}\" | sudo tee -a /etc/hosts, or mend DNS"
    );
    let outcome = match found {
        Ok(addresses) if !addresses.is_empty() => Outcome::ok(format!("{name} is {}", addresses.join(", "))),
        Ok(_) => Outcome::warning(format!("{name} has no address"), advice),
        Err(why) => Outcome::warning(format!("{name} has no address: {why}"), advice),
    };
    outcome.with(json!({ "name": name, "addresses": found.unwrap_or_default() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::outcome::Level;

    #[test]
    fn without_loopback_nothing_runs() {
        assert_eq!(judge_loopback(Ok(0.0001)).level, Level::Ok);
        let dead = judge_loopback(Err("cannot assign requested address"));
        assert!(dead.level == Level::Failed && dead.found.contains("127.0.0.1"), "{dead:?}");
    }

    #[test]
    fn a_taken_port_and_a_name_without_address_are_warned_of() {
        assert_eq!(judge_port(7400, None).level, Level::Ok);
        let taken = judge_port(7400, Some("address in use"));
        assert!(taken.level == Level::Warning && taken.advice.is_some_and(|advice| advice.contains(":7400")));
        assert_eq!(judge_name("box", Ok(&["10.0.0.1".to_owned()])).level, Level::Ok);
        assert_eq!(judge_name("box", Ok(&[])).level, Level::Warning);
        assert_eq!(judge_name("box", Err("no such host")).level, Level::Warning);
    }
}
