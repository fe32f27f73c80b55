//! Which role may call what: a table over the methods of both services. What is not in it nobody may call.

use super::identity::Role;
use Role::{Client, Master, Pserver, Trainer};

/// Every method, and the roles that may call it.
const CALLERS: [(&str, &[Role]); 18] = [
    ("/shoal.v1.Master/Describe", &[Master, Pserver, Trainer, Client]),
    ("/shoal.v1.Master/Join", &[Trainer]),
    ("/shoal.v1.Master/Lease", &[Trainer]),
    ("/shoal.v1.Master/Route", &[Trainer]),
    ("/shoal.v1.Master/Leave", &[Trainer, Client]),
    ("/shoal.v1.Master/Register", &[Pserver]),
    ("/shoal.v1.Master/Report", &[Pserver]),
    ("/shoal.v1.Master/Watch", &[Pserver]),
    ("/shoal.v1.Master/Status", &[Master, Pserver, Trainer, Client]),
    ("/shoal.v1.Master/Scale", &[Client]),
    ("/shoal.v1.Master/Checkpoint", &[Client]),
    ("/shoal.v1.Master/Drain", &[Client]),
    ("/shoal.v1.Pserver/Push", &[Trainer]),
    ("/shoal.v1.Pserver/Pull", &[Trainer]),
    ("/shoal.v1.Pserver/ReadState", &[Client]),
    ("/shoal.v1.Pserver/Follow", &[Pserver]),
    ("/shoal.v1.Pserver/Decide", &[Pserver]),
    ("/shoal.v1.Pserver/Share", &[Trainer]),
];

/// Whether who holds a certificate of this role may call `path`.
pub(crate) fn may_call(role: Role, path: &str) -> bool {
    CALLERS.iter().any(|(method, roles)| *method == path && roles.contains(&role))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_of_the_protocol_has_a_row_and_no_row_is_left_over() {
        let protocol = include_str!("../../../../proto/shoal/v1/shoal.proto");
        let mut service = "";
        let mut methods = Vec::new();
        for line in protocol.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix("service ") {
                service = rest.split_whitespace().next().unwrap();
            } else if let Some(rest) = line.strip_prefix("rpc ") {
                methods.push(format!("/shoal.v1.{service}/{}", rest.split('(').next().unwrap().trim()));
            }
        }
        assert!(methods.len() > 10);
        assert_eq!(CALLERS.map(|(method, _)| method.to_owned()).to_vec(), methods);
    }

    #[test]
    fn only_a_client_commands_only_a_trainer_trains_and_only_a_pserver_holds_blocks() {
        let who = |path: &str| Role::ALL.into_iter().filter(|role| may_call(*role, path)).collect::<Vec<_>>();
        for method in ["Master/Scale", "Master/Checkpoint", "Master/Drain", "Pserver/ReadState"] {
            assert_eq!(who(&format!("/shoal.v1.{method}")), [Client], "{method}");
        }
        for method in ["Master/Join", "Master/Lease", "Master/Route", "Pserver/Push", "Pserver/Pull"] {
            assert_eq!(who(&format!("/shoal.v1.{method}")), [Trainer], "{method}");
        }
        assert_eq!(who("/shoal.v1.Master/Leave"), [Trainer, Client], "or whoever runs it, once it has ended");
        for method in ["Master/Register", "Master/Report", "Master/Watch", "Pserver/Follow", "Pserver/Decide"]
        {
            assert_eq!(who(&format!("/shoal.v1.{method}")), [Pserver], "{method}");
        }
        for method in ["Master/Describe", "Master/Status"] {
            assert_eq!(who(&format!("/shoal.v1.{method}")), Role::ALL, "{method}");
        }
        assert!(who("/shoal.v1.Master/Other").is_empty() && who("/other.Service/Status").is_empty());
    }
}
