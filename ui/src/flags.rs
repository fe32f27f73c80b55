//! What a command that runs a job is told of its live page.

use crate::{Hands, HandsOn, Source, Ui};
use clap::ValueEnum;
use listenfd::ListenFd;
use rustix::io::FdFlags;
use shoal_runner::exit::Exit;
use std::net::{SocketAddr, TcpListener};

/// Whether there is a page, where, and whether it has buttons.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct UiFlags {
    /// Serve a live page of the run: members, steps, losses, where time goes, what happened. Its address, which has a token, is printed
    /// once; HOST:PORT says where it is served, by default at any free port of this machine's loopback address
    #[arg(long, env = "SHOAL_UI", value_name = "HOST:PORT", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:0")]
    pub ui: Option<SocketAddr>,
    /// With --ui: buttons that break the run, for whoever has the page's address
    #[arg(long, value_enum, value_name = "REACH", num_args = 0..=1, require_equals = true, default_missing_value = "processes")]
    pub hands_on: Option<Reach>,
}

/// What buttons reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Reach {
    /// Processes: they are killed, frozen, thawed, added, removed, and blocks are moved
    Processes,
    /// Links, too: each process is a host of a network of the run's own, and reaches nothing outside (root on Linux, iproute2)
    Links,
}

/// A page that is to be served once the job has begun.
#[derive(Debug)]
pub struct Prepared {
    /// Where it is going to be served.
    pub listener: TcpListener,
    hands: Option<Hands>,
}

impl UiFlags {
    /// Whether links are to be cut.
    pub fn reaches_links(&self) -> bool {
        self.hands_on == Some(Reach::Links)
    }

    /// Takes the page's place, before anything else is begun; with the other end of its buttons, if it is to have any. A place that was
    /// handed on by whoever began this process is as good.
    ///
    /// # Errors
    /// Buttons without a page, or a place that cannot be had.
    pub fn prepare(&self) -> anyhow::Result<Option<(Prepared, Option<HandsOn>)>> {
        let Some(address) = self.ui else {
            return match self.hands_on {
                Some(_) => Err(Exit::Usage("--hands-on goes with --ui".to_owned()).into()),
                None => Ok(None),
            };
        };
        let listener = match ListenFd::from_env().take_tcp_listener(0)? {
            Some(handed) => {
                // The job's processes are not to have it.
                rustix::io::fcntl_setfd(&handed, FdFlags::CLOEXEC)?;
                handed
            }
            None => bind(address)?,
        };
        let no_network = "start the run with --hands-on=links, by root on Linux".to_owned();
        let hands = self.hands_on.map(|reach| Hands::new((reach != Reach::Links).then_some(no_network)));
        let (hands, hands_on) = hands.unzip();
        Ok(Some((Prepared { listener, hands }, hands_on)))
    }
}

impl Prepared {
    /// Serves it.
    ///
    /// # Errors
    /// The system gives no randomness for a token, or no thread.
    pub fn start(self, source: Source) -> anyhow::Result<Ui> {
        Ui::start(self.listener, source, self.hands)
    }
}

/// Listens at an address; port 0 is any that is free.
///
/// # Errors
/// An address that cannot be had; the message names it and the way out.
pub fn bind(address: SocketAddr) -> Result<TcpListener, Exit> {
    TcpListener::bind(address).map_err(|error| {
        let hint = "name another HOST:PORT, with port 0 for any that is free";
        Exit::Usage(format!("the live page cannot be served at {address}: {error}; {hint}"))
    })
}
