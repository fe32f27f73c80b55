//! The live page of a job: [`Ui`] serves it, a feed asks the job's master and follows its run's journal, and `view` makes of both what
//! the page draws. It looks, and changes nothing; what a person asks for by a button, whoever runs the job does ([`Action`]).

#![forbid(unsafe_code)]

mod action;
mod curves;
mod events;
mod feed;
mod flags;
mod members;
mod page;
mod server;
mod view;
mod watcher;

pub use action::{Action, Asked, Hands, HandsOn};
pub use feed::Source;
pub use flags::{Prepared, Reach, UiFlags, bind};
pub use server::Ui;
pub use view::{Conclusion, Hash};
