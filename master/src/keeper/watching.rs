//! Tells the log when a job stands still, why, and when it goes on.

use super::look;
use crate::service::MasterService;
use crate::standstill::{Reason, Standstill};
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::sleep;

/// A cause that lasts is told again after so long.
const AGAIN: Duration = Duration::from_secs(60);

/// Looks at the front for ever.
pub(super) async fn watch(service: &MasterService) -> Infallible {
    let mut told: Option<(Reason, String, Duration)> = None;
    loop {
        sleep(4 * look(service)).await;
        let ttl = service.with(|machine, _| machine.settings().lease_ttl_millis).unwrap_or(1000);
        let standstill = service.standstill().filter(|one| one.is_told(Duration::from_millis(ttl)));
        let is_news = |one: &Standstill| {
            told.as_ref().is_none_or(|(reason, subject, at)| {
                (*reason, subject) != (one.cause.reason, &one.cause.subject) || one.age >= *at + AGAIN
            })
        };
        match standstill {
            Some(standstill) if is_news(&standstill) => {
                let Standstill { age, cause, .. } = standstill;
                tracing::warn!(
                    reason = cause.reason.word(),
                    seconds = age.as_secs(),
                    "the job stands still: {}; {}",
                    cause.text,
                    cause.way_out
                );
                told = Some((cause.reason, cause.subject, age));
            }
            Some(_) => {}
            None if told.take().is_some() => tracing::info!("the job goes on"),
            None => {}
        }
    }
}
