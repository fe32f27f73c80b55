//! Counters on the wire. Any counts are sensible, so nothing is refused. Every field is named on both sides: one that the protocol has and
//! the list of `shoal-job` has not, or the other way round, does not compile.

use super::proto;
use shoal_job::counters::{LeaseCounters, PserverCounters, TrainerCounters};

macro_rules! on_the_wire {
    ($(#[$about:meta])* $group:ident { $($(#[$help:meta])+ $name:ident: $counter:expr;)+ }) => {
        impl From<proto::$group> for $group {
            fn from(wire: proto::$group) -> $group {
                let proto::$group { $($name),+ } = wire;
                $group { $($name),+ }
            }
        }

        impl From<$group> for proto::$group {
            fn from(counters: $group) -> proto::$group {
                let $group { $($name),+ } = counters;
                proto::$group { $($name),+ }
            }
        }
    };
}

shoal_job::trainer_counters!(on_the_wire);
shoal_job::pserver_counters!(on_the_wire);
shoal_job::lease_counters!(on_the_wire);

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use shoal_job::counters::Counters;
    use std::fmt::Debug;

    fn check<C, W>()
    where
        C: Counters + From<W> + PartialEq + Debug,
        W: Message + From<C> + Default + Debug,
    {
        let mut next = 0;
        let numbered = C::default().zip(C::default(), |_, _, _| {
            next += 1;
            next
        });
        let wire = W::from(numbered);
        let shown = format!("{wire:?}");
        for (counter, value) in numbered.each() {
            let name = counter.name;
            assert!(
                shown.contains(&format!(" {name}: {value},"))
                    || shown.contains(&format!(" {name}: {value} }}"))
            );
        }
        let read = W::decode(wire.encode_to_vec().as_slice()).unwrap();
        assert_eq!(C::from(read), numbered);
    }

    #[test]
    fn nothing_is_lost_on_the_way_and_each_counter_has_the_field_of_its_name() {
        check::<TrainerCounters, proto::TrainerCounters>();
        check::<PserverCounters, proto::PserverCounters>();
        check::<LeaseCounters, proto::LeaseCounters>();
    }
}
