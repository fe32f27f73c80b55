//! What the network does to calls: losses, delays, duplicates, resets. Everything is drawn from a call's own key, so
//! that a call's fate does not depend on what other calls did.

use shoal_runtime::host::random::Random;
use std::time::Duration;

/// How bad the network is. Percentages are of calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// Requests that never arrive; as many replies are lost.
    pub loss_percent: u64,
    /// Calls delivered two or three times.
    pub duplicate_percent: u64,
    /// Calls that fail at once for the caller, whatever became of the request.
    pub reset_percent: u64,
    /// Whether a caller that gives up takes the callee's work down with it, as HTTP/2 does.
    pub cancels: bool,
    /// The usual delay is up to this, each way.
    pub delay: Duration,
    /// Messages that take up to `late` longer.
    pub late_percent: u64,
    /// See `late_percent`.
    pub late: Duration,
}

impl Weather {
    /// Nothing is lost, everything takes a millisecond.
    pub fn fair() -> Weather {
        Weather { delay: Duration::from_millis(1), ..Weather::default() }
    }
    /// Returns true if it loses, breaks and delays nothing.
    pub fn is_fair(self) -> bool {
        self.loss_percent + self.reset_percent + self.late_percent == 0
    }
    /// Twice the losses and resets, three times the stragglers.
    pub fn storm(self) -> Weather {
        Weather {
            loss_percent: self.loss_percent * 2,
            reset_percent: self.reset_percent * 2,
            late_percent: self.late_percent * 3,
            ..self
        }
    }
    /// The same delays without faults.
    pub fn healed(self) -> Weather {
        Weather { delay: self.delay, cancels: self.cancels, ..Weather::default() }
    }
}

/// What becomes of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fate {
    /// The request's copies.
    pub deliveries: Vec<Delivery>,
    /// When the caller is told that the connection is gone, if so.
    pub reset: Option<Duration>,
}

/// What becomes of one copy of a request, and of the reply to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Of the request.
    pub delay: Duration,
    /// Whether the request vanishes.
    pub is_lost: bool,
    /// Of the reply.
    pub reply_delay: Duration,
    /// Whether the reply vanishes.
    pub is_reply_lost: bool,
}

impl Fate {
    /// One delivery of `delay` each way.
    pub fn delivered(delay: Duration) -> Fate {
        let once = Delivery { delay, is_lost: false, reply_delay: delay, is_reply_lost: false };
        Fate { deliveries: vec![once], reset: None }
    }
    /// Every copy of the request vanishes.
    pub fn request_lost(mut self) -> Fate {
        self.deliveries.iter_mut().for_each(|delivery| delivery.is_lost = true);
        self
    }
    /// Every reply vanishes.
    pub fn reply_lost(mut self) -> Fate {
        self.deliveries.iter_mut().for_each(|delivery| delivery.is_reply_lost = true);
        self
    }
    /// Requests take `delay` instead.
    pub fn delayed(mut self, delay: Duration) -> Fate {
        self.deliveries.iter_mut().for_each(|delivery| delivery.delay = delay);
        self
    }

    /// Draws a fate.
    pub fn draw(weather: &Weather, random: &mut Random) -> Fate {
        let copies = match random.percent(weather.duplicate_percent) {
            true => 2 + random.below(2),
            false => 1,
        };
        let deliveries = (0..copies).map(|_| Delivery {
            delay: delay(weather, random),
            is_lost: random.percent(weather.loss_percent),
            reply_delay: delay(weather, random),
            is_reply_lost: random.percent(weather.loss_percent),
        });
        let deliveries = deliveries.collect();
        let reset = random.percent(weather.reset_percent).then(|| delay(weather, random));
        Fate { deliveries, reset }
    }
}

fn delay(weather: &Weather, random: &mut Random) -> Duration {
    let up_to = |most: Duration, random: &mut Random| random.below(most.as_millis() as u64 + 1);
    let usual = 1 + up_to(weather.delay.saturating_sub(Duration::from_millis(1)), random);
    let late = if random.percent(weather.late_percent) { up_to(weather.late, random) } else { 0 };
    Duration::from_millis(usual + late)
}
