//! Whoever asks a process whether it is alive, every ten milliseconds, and notes how long the answer takes. It must never ask
//! twice at a time: a queue of its own questions would be what is measured.

use crate::measure::pause;
use anyhow::{Context, anyhow, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::time::Instant;

const BETWEEN: Duration = Duration::from_millis(10);
const QUESTION: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: pserver\r\nConnection: close\r\n\r\n";
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// When a question was asked, and when it was answered.
type Asked = [Instant; 2];

pub(super) struct Probe {
    asked: Arc<Mutex<Vec<Asked>>>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl Probe {
    /// Begins to ask.
    pub(super) fn start(pages: &str) -> anyhow::Result<Probe> {
        let (asked, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (of_thread, is_over_there, pages) = (Arc::clone(&asked), Arc::clone(&is_over), pages.to_owned());
        let thread = std::thread::Builder::new().spawn(move || {
            while !is_over_there.load(Ordering::Relaxed) {
                let begin = Instant::now();
                ask(&pages).with_context(|| format!("{pages}/healthz"))?;
                of_thread.lock().unwrap_or_else(PoisonError::into_inner).push([begin, Instant::now()]);
                pause(BETWEEN);
            }
            Ok(())
        })?;
        Ok(Probe { asked, is_over, thread })
    }

    /// Milliseconds of the longest answer that was waited for at some time between `begin` and now.
    pub(super) fn longest_since(self, begin: Instant) -> anyhow::Result<f64> {
        let end = Instant::now();
        // The question that is under way is answered first.
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the probe panicked"))??;
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        longest(&asked, begin, end).context("/healthz was not asked while it was measured")
    }
}

/// Of those that were under way between the two.
fn longest(asked: &[Asked], begin: Instant, end: Instant) -> Option<f64> {
    let within = asked.iter().filter(|[from, to]| *to >= begin && *from <= end);
    within.map(|[from, to]| (*to - *from).as_secs_f64() * 1e3).reduce(f64::max)
}

fn ask(pages: &str) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect_timeout(&pages.parse()?, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(QUESTION)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "it answered {answer:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_that_was_waited_for_at_some_time_of_the_measurement_and_no_other() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let asked =
            [[at(0), at(90)], [at(95), at(110)], [at(120), at(121)], [at(195), at(235)], [at(240), at(900)]];
        assert_eq!(longest(&asked, at(100), at(200)), Some(40.0));
        assert_eq!(longest(&asked, at(112), at(115)), None);
    }
}
