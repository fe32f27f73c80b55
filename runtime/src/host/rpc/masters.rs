//! Those who may lead a job, and how a call finds the one who does: it turns to the next address when there is no answer
//! or the answer is "not the leader". What is called is never decided here.

use super::{Channel, Dial, master_client};
use crate::cluster::RefusalKind;
use crate::wire::Fault;
use crate::wire::proto::master_client::MasterClient;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Response, Status};

/// A job's masters: the leader and standbys.
#[allow(missing_debug_implementations, reason = "a channel has nothing to show")]
pub struct Masters {
    seats: Vec<(String, MasterClient<Channel>)>,
    /// Whom to ask, modulo the number of addresses.
    at: AtomicUsize,
    heard: Mutex<Option<Instant>>,
}

/// Whom a call was made to.
#[derive(Clone, Copy, Debug)]
pub struct Asked(usize);

impl Masters {
    /// Connects to every address of a list with commas, at the first call to each.
    ///
    /// # Errors
    /// No address, or one that is none.
    pub fn new(list: &str, dial: &dyn Dial) -> Result<Masters, String> {
        let addresses = list.split(',').map(str::trim).filter(|address| !address.is_empty());
        let seat = |address: &str| Ok((address.to_owned(), master_client(dial, address)?));
        let seats = addresses.map(seat).collect::<Result<Vec<_>, String>>()?;
        if seats.is_empty() {
            return Err(format!("{list:?}: give host:port, or several with commas"));
        }
        Ok(Masters { seats, at: AtomicUsize::new(0), heard: Mutex::new(None) })
    }

    /// Who is asked at present.
    pub fn present(&self) -> (Asked, MasterClient<Channel>) {
        let at = self.at.load(Relaxed);
        (Asked(at), self.seats[at % self.seats.len()].1.clone())
    }
    /// The address of who is asked at present.
    pub fn address(&self) -> &str {
        &self.seats[self.at.load(Relaxed) % self.seats.len()].0
    }
    /// All addresses, with commas.
    pub fn addresses(&self) -> String {
        self.seats.iter().map(|(address, _)| address.as_str()).collect::<Vec<_>>().join(",")
    }

    /// How long ago the leader gave an answer that is no refusal; none while it has given none.
    pub fn heard_ago(&self) -> Option<Duration> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).map(|heard| heard.elapsed())
    }

    /// Whether a leader was heard of late enough for leases of this time to live: within two of them.
    ///
    /// # Errors
    /// Since when it was not, and who was asked, in one line.
    pub fn check_heard(&self, ttl: Duration) -> Result<(), String> {
        match self.heard_ago() {
            Some(ago) if ago <= 2 * ttl => Ok(()),
            Some(ago) => {
                let (seconds, ttl) = (ago.as_secs_f64(), ttl.as_secs_f64());
                let masters = self.addresses();
                Err(format!(
                    "no master of {masters} has answered as the leader for {seconds:.1} s (lease TTL {ttl} s)"
                ))
            }
            None => Err(format!("no master of {} has answered as the leader yet", self.addresses())),
        }
    }

    /// Takes note of an answer: from who does not lead, or does not answer, later calls turn to the next. Not when
    /// another call has turned meanwhile: together they would pass the leader by.
    pub fn hear<T>(&self, asked: Asked, answer: &Result<T, Fault>) {
        if answer.is_ok() {
            *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        if answer.as_ref().is_err_and(is_no_leader) {
            let _ = self.at.compare_exchange(asked.0, asked.0.wrapping_add(1), Relaxed, Relaxed);
        }
    }

    /// One attempt of a call, which may take `within`.
    ///
    /// # Errors
    /// A refusal, or no answer in time.
    pub async fn call<T, F>(
        &self,
        within: Duration,
        call: impl FnOnce(MasterClient<Channel>) -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let (asked, client) = self.present();
        let answer = match tokio::time::timeout(within, call(client)).await {
            Ok(answer) => answer.map(Response::into_inner).map_err(Fault::from),
            Err(_) => Err(Fault::Unreachable(String::from("no answer in time"))),
        };
        self.hear(asked, &answer);
        answer
    }
}

fn is_no_leader(fault: &Fault) -> bool {
    matches!(fault, Fault::Unreachable(_) | Fault::Untrusted(_))
        || fault.refusal().is_some_and(|refusal| refusal.kind == RefusalKind::NotLeader)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Refusal;
    use crate::host::rpc::TcpDial;

    fn masters(list: &str) -> Result<Masters, String> {
        // Connections are made with the first call: there is none.
        Masters::new(list, &TcpDial::default())
    }
    fn answer(kind: RefusalKind) -> Result<(), Fault> {
        Err(Refusal::new(kind, "master", "a test").into())
    }

    #[tokio::test]
    async fn a_list_has_commas_and_at_least_one_address() {
        assert_eq!(masters("a:1, b:2,").unwrap().addresses(), "a:1,b:2");
        assert!(masters(" ,").is_err() && masters("").is_err());
    }

    #[tokio::test]
    async fn who_does_not_lead_or_does_not_answer_is_turned_from_once_and_in_a_circle() {
        let masters = masters("a:1,b:2").unwrap();
        let (first, _) = masters.present();
        masters.hear(first, &Ok(()));
        masters.hear(first, &answer(RefusalKind::StaleIncarnation));
        assert_eq!(masters.address(), "a:1", "that is an answer of the leader's");
        masters.hear(first, &answer(RefusalKind::NotLeader));
        masters.hear(first, &Err::<(), _>(Fault::Unreachable(String::new())));
        assert_eq!(masters.address(), "b:2", "the second word was about the same one");
        let (second, _) = masters.present();
        masters.hear(second, &Err::<(), _>(Fault::Unreachable(String::new())));
        assert_eq!(masters.address(), "a:1");
    }

    #[tokio::test(start_paused = true)]
    async fn a_master_is_heard_by_its_answers_and_only_for_two_times_to_live() {
        let (masters, ttl) = (masters("a:1,b:2").unwrap(), Duration::from_secs(1));
        let (first, _) = masters.present();
        assert!(masters.check_heard(ttl).unwrap_err().contains("yet"));
        masters.hear(first, &answer(RefusalKind::NotReady));
        assert_eq!(masters.heard_ago(), None, "a refusal is no sign that anybody leads");
        masters.hear(first, &Ok(()));
        tokio::time::advance(2 * ttl).await;
        masters.hear(first, &Err::<(), _>(Fault::Unreachable(String::new())));
        assert_eq!(masters.check_heard(ttl), Ok(()));
        tokio::time::advance(ttl).await;
        let why = masters.check_heard(ttl).unwrap_err();
        assert!(why.contains("3.0 s") && why.contains("a:1,b:2"), "{why}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_takes_too_long_is_no_answer() {
        let masters = masters("a:1,b:2").unwrap();
        let answer: Result<(), Fault> =
            masters.call(Duration::from_secs(1), |_| std::future::pending()).await;
        assert!(matches!(answer, Err(Fault::Unreachable(_))));
        assert_eq!(masters.address(), "b:2");
    }
}
