//! One suite that every backend must pass: the contract at `src/endpoint.rs`, line by line.
//!
//! A backend joins with a fixture (`conformance/<backend>.rs`) and one `conformance!` line at the
//! end of this file. A test is an `async fn` over a [`Cluster`](fixture::Cluster) of two
//! nodes, and is added by naming it in the list below.

mod fixture;

mod checks;
mod concurrency;
mod counters;
mod failures;
mod messages;
mod order;
mod values;

// The fixtures, one for each backend.
mod rdma;
mod shm;
mod sim;
mod tcp;

/// The whole suite for one fixture; the attribute goes to each test.
macro_rules! conformance {
    ($backend:ident, $fixture:ty) => {
        conformance!([cfg(test)] $backend, $fixture);
    };
    ($attribute:tt $backend:ident, $fixture:ty) => {
        mod $backend {
            suite! { $attribute $fixture,
                values: [
                    bytes_survive_every_size_and_alignment,
                    large_transfers_survive,
                    a_view_is_what_a_read_brings,
                    words_are_little_endian_bytes,
                    compare_swap_swaps_on_equality_only,
                    fetch_add_returns_the_word_before_and_wraps,
                    masked_compare_swap_looks_at_masked_bits_only,
                    masked_fetch_add_suppresses_carries_at_boundaries,
                    wide_compare_swap_is_one_word,
                    wide_fetch_add_is_one_word,
                    a_batch_returns_each_result,
                    nodes_are_separate_memories,
                ]
                checks: [
                    unknown_nodes_are_refused,
                    the_last_byte_is_inside_and_the_next_is_not,
                    misaligned_words_are_refused,
                    a_bad_verb_anywhere_keeps_the_batch_from_being_posted,
                    missing_capabilities_are_refused,
                ]
                order: [
                    verbs_of_a_batch_take_effect_in_order,
                    posts_of_one_endpoint_take_effect_in_posting_order,
                    data_is_there_when_its_flag_is,
                ]
                concurrency: [
                    fetch_adds_all_count,
                    masked_adds_of_neighbouring_fields_all_count,
                    wide_adds_all_count,
                    compare_swap_has_one_winner,
                    words_never_tear,
                ]
                messages: [
                    identities_differ,
                    messages_of_one_sender_arrive_in_order,
                    messages_of_many_senders_arrive_once,
                    messages_of_every_size_arrive_whole,
                    a_full_mailbox_refuses_and_recovers,
                    an_unknown_peer_is_named,
                    a_receive_ends_at_its_deadline,
                    a_receive_waits_for_a_late_message,
                    what_has_arrived_is_taken_without_waiting,
                    a_dropped_receive_loses_no_message,
                ]
                failures: [
                    a_stopped_node_is_gone_and_the_others_work,
                    a_stalled_node_meets_the_deadline,
                    a_dropped_verb_leaves_an_empty_or_whole_buffer,
                    a_fenced_endpoint_has_no_effect,
                    an_unknown_endpoint_is_cut_off,
                    fencing_oneself_is_answered_truly,
                    an_endpoint_that_left_is_cut_off,
                ]
                counters: [
                    counters_are_exact,
                    clocks_do_not_go_back_and_sleep_long_enough,
                    random_numbers_differ,
                ]
            }
        }
    };
}

/// One `#[test]` for each name.
macro_rules! suite {
    ($attribute:tt $fixture:ty, $($file:ident: [$($test:ident,)*])*) => {
        $($(
            #[test]
            # $attribute
            fn $test() {
                use $crate::conformance::fixture::{Fixture, NODE_BYTES, NODE_COUNT};
                <$fixture as Fixture>::run(NODE_COUNT, NODE_BYTES, |cluster| {
                    Box::pin($crate::conformance::$file::$test(cluster))
                });
            }
        )*)*
    };
}

conformance!(on_shm, super::shm::Shm);
conformance!(on_sim_torn_at_lines, super::sim::SimLines);
conformance!(on_sim_torn_at_words, super::sim::SimWords);
conformance!(on_tcp, super::tcp::Tcp);
conformance!(on_tcp_and_mapped, super::tcp::TcpAndMapped);
conformance!([ignore = "needs an RDMA device: cargo xtask vm-tests"] on_rdma, super::rdma::Rdma);
conformance!([ignore = "needs an RDMA device: cargo xtask vm-tests"] on_rdma_and_tcp, super::rdma::RdmaAndTcp);
