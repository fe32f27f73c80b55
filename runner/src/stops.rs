//! Whether a process is stopped by somebody who is not this run, and goes on. A run tells of it, as of what chaos and buttons do:
//! otherwise nobody knows later why it stood still.

use std::time::Duration;
use tokio::time::Instant;

/// How often a process is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// What lasts for a shorter time is not told of.
const LASTS: Duration = Duration::from_millis(500);

/// What has to be told of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It is stopped.
    Stopped,
    /// It goes on, after it was.
    Continues,
}

/// Watches one process.
#[derive(Debug, Default)]
pub(crate) struct StopWatch {
    looked: Option<Instant>,
    /// Since when it is otherwise than was told.
    since: Option<Instant>,
    is_told: bool,
}

impl StopWatch {
    /// Looks whether it is stopped, if it is time to.
    pub(crate) fn news(&mut self, now: Instant, is_stopped: impl FnOnce() -> bool) -> Option<News> {
        if self.looked.is_some_and(|looked| now < looked + LOOK) {
            return None;
        }
        self.looked = Some(now);
        let is_stopped = is_stopped();
        if is_stopped == self.is_told {
            self.since = None;
            return None;
        }
        if now - *self.since.get_or_insert(now) < LASTS {
            return None;
        }
        (self.is_told, self.since) = (is_stopped, None);
        Some(if is_stopped { News::Stopped } else { News::Continues })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_told_once_and_so_is_its_end() {
        let (begun, mut watch) = (Instant::now(), StopWatch::default());
        let mut news = |millis: u64, is: bool| watch.news(begun + Duration::from_millis(millis), || is);
        assert_eq!(news(0, false), None);
        assert_eq!([news(300, true), news(400, true), news(600, false)], [None; 3], "it was short");
        assert_eq!([news(1_000, true), news(1_300, true)], [None; 2]);
        assert_eq!([news(1_600, true), news(2_000, true)], [Some(News::Stopped), None]);
        assert_eq!([news(2_300, false), news(2_600, true)], [None; 2], "it went on for a moment");
        assert_eq!([news(2_900, false), news(3_200, false)], [None; 2]);
        assert_eq!([news(3_500, false), news(3_800, false)], [Some(News::Continues), None]);
    }
}
