//! The lists of counters: of each its sentence, its field, how it is added up and where metrics have it. A list gives itself to the macro
//! that is named, so that whoever needs all fields by name (here the types, in `shoal-runtime` what goes over the wire) names none.

use super::Family;

/// What trainers' time goes to.
pub(super) const SECONDS: Family = Family {
    name: "seconds",
    label: "activity",
    help: "Seconds spent on each activity; they add up to the time since joining. read: waiting for records; wait: no task, or others \
           have yet to complete the step before.",
};
/// Pushes that were not taken whole.
pub(super) const PUSHES_REFUSED: Family = Family {
    name: "pushes_refused",
    label: "kind",
    help: "Push messages of which some block took nothing: it had the node, or had applied it; gave no credit; waited for its piece of \
           a checkpoint; was elsewhere; had gone back.",
};
/// What became of leases.
pub(super) const LEASES: Family = Family {
    name: "leases",
    label: "kind",
    help: "Leases in this master's term: given; of these given for what was leased before, or while another still has it; ended by \
           time or by hand-back.",
};

/// What a trainer counts.
#[macro_export]
macro_rules! trainer_counters {
    ($tell:ident) => {
        $tell! {
            /// What a trainer has counted, cumulative over its life. The times add up to its life.
            TrainerCounters {
                /// Microseconds in the step function, and in what is added up after it.
                compute_micros: sum(Part(&SECONDS, "compute"));
                /// Microseconds in which published parameters came. A pull counts once it is answered.
                pull_micros: sum(Part(&SECONDS, "pull"));
                /// Microseconds in which a gradient went to pservers.
                push_micros: sum(Part(&SECONDS, "push"));
                /// Microseconds in which records of its tasks were being read, and there was nothing else to do.
                read_micros: sum(Part(&SECONDS, "read"));
                /// Microseconds without a task, or until others had completed the step before.
                wait_micros: sum(Part(&SECONDS, "wait"));
                /// Microbatches put through the step function.
                microbatches: sum(As("microbatches"));
                /// Tasks done.
                tasks: sum(As("tasks"));
                /// Bytes of chunks read.
                bytes_read: sum(As("read_bytes"));
                /// Calls tried again after a pause.
                retries: sum(As("retries"));
                /// Records put through the step function, or predicted.
                records: sum(As("records"));
                /// Elements of gradients that were -0.0.
                negative_zeros: sum(Nowhere);
            }
        }
    };
}

/// What a pserver counts.
#[macro_export]
macro_rules! pserver_counters {
    ($tell:ident) => {
        $tell! {
            /// What a pserver has counted, cumulative over its life. Refused messages are not counted.
            PserverCounters {
                /// Push messages answered.
                pushes: sum(As("pushes"));
                /// Push messages of which some block held the node already, by itself or by an ancestor.
                duplicates_refused: sum(Part(&PUSHES_REFUSED, "duplicate"));
                /// Push messages of which some block had applied the step already.
                late_pushes: sum(Part(&PUSHES_REFUSED, "late"));
                /// Push messages that some block gave no credit.
                busy: sum(Part(&PUSHES_REFUSED, "busy"));
                /// Pushes and questions for credit of which some block waited for its piece to be written.
                throttled: sum(Part(&PUSHES_REFUSED, "throttled"));
                /// Push messages of which some block was elsewhere.
                moved: sum(Part(&PUSHES_REFUSED, "moved")).json_as("pushes_moved");
                /// Push messages of which some block had gone back.
                rewound: sum(Part(&PUSHES_REFUSED, "rewound")).json_as("pushes_rewound");
                /// Records in pushes that would have counted twice; counted on the job's block 0 alone.
                records_refused: sum(As("records_refused"));
                /// Bytes of gradients taken in.
                bytes_in: sum(As("received_bytes"));
                /// Bytes of parameters and state given out.
                bytes_out: sum(As("sent_bytes"));
                /// Rows of tables in the buckets led here.
                rows: holding(As("rows")).json_as("table_rows");
                /// Memory of these rows, with their index and free slots.
                row_bytes: holding(As("rows_bytes")).json_as("table_bytes");
                /// Rows that updates let go of, by age or by score.
                rows_evicted: sum(As("rows_evicted"));
                /// Keys left unborn because their bucket was full, each time.
                keys_refused: sum(As("keys_refused"));
                /// Copies taken whole, as a follower.
                fills: sum(As("fills"));
                /// Log entries taken, as a follower.
                entries: sum(As("entries"));
                /// Bytes of copies and log entries taken, as a follower.
                bytes_followed: sum(As("followed_bytes"));
                /// Pieces of checkpoints written.
                pieces_written: sum(As("pieces_written"));
                /// Bytes of checkpoints written.
                bytes_written: sum(As("written_bytes"));
                /// The most bytes that pieces held at a time beyond what training needs, while they waited to be written.
                checkpoint_memory_peak: peak(As("checkpoint_memory_peak_bytes"));
                /// Blocks whose updates run on the device.
                device_blocks: holding(As("device_blocks"));
                /// Gradients that updates found in device memory already, in bytes.
                device_gradient_bytes: sum(As("device_gradient_bytes"));
                /// Parameters that trainers of this machine were given in device memory, in bytes.
                device_parameter_bytes: sum(As("device_parameter_bytes"));
                /// Held nodes that an ancestor took the place of: the most over the blocks of each push message.
                replaced_by_ancestor: sum(Nowhere);
                /// Short steps applied, counted on the lowest block here.
                short_steps: sum(Nowhere);
                /// Levels of the tree at which nodes were pushed.
                levels: bits();
                /// Bytes copied because an update met buffers that a piece or a follower still had.
                bytes_copied_on_write: sum(Nowhere);
                /// Microseconds of processors' time that its process took.
                processor_micros: sum(Nowhere);
            }
        }
    };
}

/// What a master counts of leases.
#[macro_export]
macro_rules! lease_counters {
    ($tell:ident) => {
        $tell! {
            /// What happened to leases in a master's term.
            LeaseCounters {
                /// Leases given.
                leased: sum(Part(&LEASES, "leased")).json_as("tasks_leased");
                /// Of these, leases of slots that had been leased before (lost or handed back; speculation not counted).
                leased_again: sum(Part(&LEASES, "leased_again")).json_as("tasks_leased_again");
                /// Leases given to idle trainers although another trainer holds the slots.
                speculative: sum(Part(&LEASES, "speculative"));
                /// Leases that ended because the trainer fell silent or made no progress.
                expired: sum(Part(&LEASES, "expired")).json_as("tasks_expired");
                /// Leases that a leaving trainer handed back.
                handed_back: sum(Part(&LEASES, "handed_back")).json_as("tasks_handed_back");
            }
        }
    };
}
