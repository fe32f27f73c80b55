//! P4 and P5: once faults are over, steps follow one another within bounded time, the job ends, and so does every
//! trainer, with the word that fits its life.

use crate::sim::evidence::{End, Evidence, Life};
use shoal_trainer_sdk::Ended;

pub(super) fn check(evidence: &Evidence) -> Result<(), String> {
    if evidence.ran_away {
        return Err(String::from("somebody calls without end"));
    }
    let Some(status) = &evidence.status else { return Err(String::from("the master does not answer")) };
    if evidence.stood_still > evidence.may_stand_still {
        let (stood, may) = (evidence.stood_still, evidence.may_stand_still);
        return Err(format!(
            "step {} of {} stood still for {stood:?}, at most {may:?} may",
            status.step, status.steps
        ));
    }
    if status.phase != "done" {
        return Err(format!("the job is {:?} at step {}: {:?}", status.phase, status.step, status.failure));
    }
    match evidence.lives.iter().find(|life| !ended_well(life)) {
        Some(life) => Err(format!("{} ended as {:?}", life.host, life.end)),
        None => Ok(()),
    }
}

fn ended_well(life: &Life) -> bool {
    match life.end {
        End::Crashed | End::Unfit | End::Well(Ended::JobDone) => true,
        End::Well(Ended::Left) => life.is_asked_to_leave,
        End::Superseded => life.shares_name,
        End::Failed(_) | End::NotYet => false,
    }
}
