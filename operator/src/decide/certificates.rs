//! When a certificate that the operator issues is due: from what is said of the one that there is, the authority and the time. Pure.

use crate::api::Moment;

/// What is known of a certificate that was issued: what its secret says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateView {
    /// When it was issued.
    pub issued: Moment,
    /// When it ends.
    pub expires: Moment,
    /// By which authority, and for those who believe which: a fingerprint of both.
    pub authority: String,
}

/// Who issues now, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IssuerView<'a> {
    /// Its fingerprint.
    pub authority: &'a str,
    /// When its own certificate ends, and with it all that it signs.
    pub ends: Moment,
    /// How long its certificates are good for, in seconds.
    pub lifetime: u64,
}

/// Why one is issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// There is none, or nobody knows what it is.
    Missing,
    /// Two thirds of its time are over. What is left is for who hears of it late: a kubelet takes a minute or two, and nobody an hour.
    Expires,
    /// There is another authority, or others are to be believed beside it.
    OtherAuthority,
}

impl std::fmt::Display for Due {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Due::Missing => "there is none",
            Due::Expires => "two thirds of its time are over",
            Due::OtherAuthority => "the authority is another, or not the only one any more",
        })
    }
}

impl CertificateView {
    /// When the next is issued, whatever the authority is.
    pub fn renewed_at(&self) -> Moment {
        self.issued.plus(self.expires.since(self.issued) * 2 / 3)
    }
}

impl IssuerView<'_> {
    /// Whether certificates of a job whose pods run count as there and not due, though this operator has looked at none: another has
    /// served the job lately (`served`), and since what it issues by was the same (`settled`). It looked at them every ten minutes, and
    /// a third of their life is left where they are changed in time: a quarter of that is no risk.
    pub fn presumes(&self, served: Option<Moment>, settled: Moment, now: Moment) -> bool {
        served.is_some_and(|served| served >= settled && now.since(served) <= self.lifetime / 12)
    }
}

/// When a certificate ends that is issued now: with its time, or with its authority's.
pub fn certificate_end(issuer: &IssuerView<'_>, now: Moment) -> Moment {
    now.plus(issuer.lifetime).min(issuer.ends)
}

/// Why a certificate is to be issued now; none if it is not.
pub fn certificate_due(held: Option<&CertificateView>, issuer: &IssuerView<'_>, now: Moment) -> Option<Due> {
    let Some(held) = held else { return Some(Due::Missing) };
    if held.authority != issuer.authority {
        return Some(Due::OtherAuthority);
    }
    // An authority near its end can give no more time than it has: to ask again and again brings nothing.
    let brings_time = certificate_end(issuer, now) > held.expires;
    (now >= held.renewed_at() && brings_time).then_some(Due::Expires)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ISSUER: IssuerView<'_> = IssuerView { authority: "a", ends: Moment(1_000_000), lifetime: 90 };

    fn issued(at: i64, issuer: &IssuerView<'_>) -> CertificateView {
        let expires = certificate_end(issuer, Moment(at));
        CertificateView { issued: Moment(at), expires, authority: issuer.authority.to_owned() }
    }

    #[test]
    fn a_certificate_is_issued_where_there_is_none_and_again_after_two_thirds_of_its_time() {
        assert_eq!(certificate_due(None, &ISSUER, Moment(0)), Some(Due::Missing));
        let held = issued(100, &ISSUER);
        let at = |now| certificate_due(Some(&held), &ISSUER, Moment(now));
        assert_eq!(
            [100, 159, 160, 189, 1000].map(at),
            [None, None, Some(Due::Expires), Some(Due::Expires), Some(Due::Expires)]
        );
        assert_eq!(at(0), None, "a clock that was set back");
    }

    #[test]
    fn another_authority_is_heard_of_at_once() {
        let other = IssuerView { authority: "a and b", ..ISSUER };
        assert_eq!(
            certificate_due(Some(&issued(100, &ISSUER)), &other, Moment(101)),
            Some(Due::OtherAuthority)
        );
    }

    #[test]
    fn certificates_are_presumed_only_of_a_job_that_was_served_lately_and_under_the_same_authority() {
        let issuer = IssuerView { lifetime: 1200, ..ISSUER };
        let presumes = |served, settled| issuer.presumes(served, Moment(settled), Moment(1000));
        assert!(presumes(Some(Moment(900)), 900) && presumes(Some(Moment(1000)), 0));
        assert!(!presumes(None, 0), "nobody knows of an operator before");
        assert!(!presumes(Some(Moment(899)), 0), "it was away for more than a twelfth of their life");
        assert!(!presumes(Some(Moment(950)), 951), "the authority was changed since");
    }

    #[test]
    fn an_authority_that_ends_is_not_asked_for_more_than_it_has() {
        let ends = IssuerView { ends: Moment(150), ..ISSUER };
        let held = issued(100, &ends);
        assert_eq!(held.expires, Moment(150));
        assert_eq!(certificate_due(Some(&held), &ends, Moment(149)), None);
    }

    proptest! {
        /// Whoever is asked often enough never has a certificate that has ended, and is given few.
        #[test]
        fn looked_at_often_enough_no_certificate_ends_and_few_are_issued(lifetime in 6u64..10_000, every in 1u64..2, start in 0i64..100) {
            let issuer = IssuerView { lifetime, ends: Moment(i64::MAX), ..ISSUER };
            let (mut held, mut count) = (None, 0u64);
            let steps = 5 * lifetime / every;
            for step in 0..steps {
                let now = Moment(start).plus(step * every);
                if certificate_due(held.as_ref(), &issuer, now).is_some() {
                    held = Some(issued(now.0, &issuer));
                    count += 1;
                }
                let now_held = held.as_ref().unwrap();
                prop_assert!(now < now_held.expires && certificate_due(Some(now_held), &issuer, now).is_none());
            }
            prop_assert!(count <= 9, "{count} in five lives");
        }
    }
}
