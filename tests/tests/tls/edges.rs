//! The calls by which a stranger would do harm, one for each pair of roles.

use crate::job::{Count, RECORDS};
use crate::shown::JOB;
use shoal_runtime::host::rpc::tls::Role;
use shoal_runtime::host::rpc::{Channel, asking};
use shoal_runtime::wire::proto::master_client::MasterClient;
use shoal_runtime::wire::proto::pserver_client::PserverClient;
use shoal_runtime::wire::{Fault, WireVersion, proto};
use tonic::Response;

/// Who calls whom, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    TrainerJoins,
    TrainerPushes,
    TrainerPulls,
    PserverRegisters,
    FollowerFollows,
    PserverDecides,
    ClientScales,
    ClientReads,
}

impl Edge {
    pub(crate) const ALL: [Edge; 8] = [
        Edge::TrainerJoins,
        Edge::TrainerPushes,
        Edge::TrainerPulls,
        Edge::PserverRegisters,
        Edge::FollowerFollows,
        Edge::PserverDecides,
        Edge::ClientScales,
        Edge::ClientReads,
    ];

    pub(crate) fn caller(self) -> Role {
        match self {
            Edge::TrainerJoins | Edge::TrainerPushes | Edge::TrainerPulls => Role::Trainer,
            Edge::PserverRegisters | Edge::FollowerFollows | Edge::PserverDecides => Role::Pserver,
            Edge::ClientScales | Edge::ClientReads => Role::Client,
        }
    }

    pub(crate) fn called(self) -> Role {
        match self {
            Edge::TrainerJoins | Edge::PserverRegisters | Edge::ClientScales => Role::Master,
            _ => Role::Pserver,
        }
    }

    /// Makes the call, as a member of the job would.
    pub(crate) async fn call(self, channel: Channel) -> Result<(), Fault> {
        let job = || JOB.to_owned();
        let channel = asking(channel, WireVersion::PRESENT);
        let (mut master, mut pserver) = (MasterClient::new(channel.clone()), PserverClient::new(channel));
        let name = || "stranger".to_owned();
        match self {
            Edge::TrainerJoins => {
                let declaration = Some((&Count::declaration(RECORDS)).into());
                let request = proto::JoinRequest {
                    job: job(),
                    name: name(),
                    nonce: 1,
                    declaration,
                    ..Default::default()
                };
                answered(master.join(request).await)
            }
            Edge::PserverRegisters => {
                let address = "127.0.0.1:1".to_owned();
                let request = proto::RegisterRequest {
                    job: job(),
                    name: name(),
                    nonce: 1,
                    address,
                    ..Default::default()
                };
                answered(master.register(request).await)
            }
            Edge::ClientScales => {
                let request = proto::ScaleRequest { job: job(), trainers: Some(77), ..Default::default() };
                answered(master.scale(request).await)
            }
            Edge::TrainerPushes => {
                let request = proto::PushRequest { job: job(), ..Default::default() };
                answered(pserver.push(request).await)
            }
            Edge::TrainerPulls => {
                answered(pserver.pull(proto::PullRequest { job: job(), ..Default::default() }).await)
            }
            Edge::FollowerFollows => {
                answered(pserver.follow(proto::FollowRequest { job: job(), ..Default::default() }).await)
            }
            Edge::PserverDecides => {
                answered(pserver.decide(proto::DecideRequest { job: job(), ..Default::default() }).await)
            }
            Edge::ClientReads => answered(
                pserver.read_state(proto::ReadStateRequest { job: job(), ..Default::default() }).await,
            ),
        }
    }
}

fn answered<T>(answer: Result<Response<T>, tonic::Status>) -> Result<(), Fault> {
    answer.map(|_| ()).map_err(Fault::from)
}

/// Whether the role itself has seen the call: it took it, or refused it in its own words.
pub(crate) fn was_heard(answer: &Result<(), Fault>) -> bool {
    matches!(answer, Ok(()) | Err(Fault::Refused(_)))
}
