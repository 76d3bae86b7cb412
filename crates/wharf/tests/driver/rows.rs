//! Faults that attacks on the driver found, with the tests of each, and the kinds of pools that
//! these run on.

use std::{collections::BTreeSet, process::Command};

/// A row of faults.
struct Row {
    fault: &'static str,
    /// The pools that the tests run on: `copy` is a folder on ext4, `reflink` an XFS image, `btrfs`
    /// a disk with btrfs.
    pools: &'static [&'static str],
    /// Why the other pools need no test of their own.
    others: &'static str,
    tests: &'static [&'static str],
}

const EVERY: &[&str] = &["copy", "reflink", "btrfs"];
const KERNEL: &str = "loop devices and mounts are handled without a look at the pool's filesystem";
const COPYING: &str =
    "btrfs copies thick images as `copy` does, and shares blocks of thin ones as `reflink` does";

const ROWS: &[Row] = &[
    Row {
        fault: "D1: one image on two writable loop devices",
        pools: EVERY,
        others: "",
        tests: &[
            "devices::a_volume_that_a_stranger_holds_is_staged_on_the_same_device_again",
            "devices::a_held_device_is_neither_checked_nor_turned_around",
            "held::a_held_volume_that_was_expanded_is_staged_and_grows_later",
        ],
    },
    Row {
        fault: "D2: a published block target turns into a stranger's device",
        pools: EVERY,
        others: "",
        tests: &["devices::a_target_published_while_another_is_unpublished_keeps_its_device"],
    },
    Row {
        fault: "D3: a kill during an offline growth bricks the volume",
        pools: EVERY,
        others: "",
        tests: &[
            "offline::a_growth_that_is_killed_leaves_the_volume_as_it_was",
            "offline::a_check_that_is_killed_leaves_the_volume_as_it_was",
            "offline::a_growth_that_takes_too_long_is_undone_at_once",
            "offline::a_driver_that_dies_while_a_copy_is_grown_leaves_the_volume_as_it_was",
            "mkfs::a_format_with_ext4_that_is_killed_is_begun_again",
            "mkfs::a_format_with_xfs_that_is_killed_is_begun_again",
            "pending::a_half_changed_image_is_restored_before_it_is_copied_or_grown",
            "repair::a_damaged_volume_is_repaired_when_a_person_says_so",
        ],
    },
    Row {
        fault: "D4a: a snapshot's reserve is arithmetic only",
        pools: &["reflink"],
        others: "thick volumes share no blocks on `copy` and on btrfs",
        tests: &[
            "unshare::a_thick_volume_with_a_snapshot_is_overwritten_on_a_pool_that_others_filled",
            "unshare::what_was_shared_is_unshared_once_the_pool_allows_thin_volumes",
            "unshare_crashes::a_crash_at_any_point_of_the_unsharing_of_a_snapshot_costs_nothing",
            "unshare_crashes::a_crash_at_any_point_of_the_unsharing_of_a_clone_costs_nothing",
        ],
    },
    Row {
        fault: "D4b: a discard takes space from a thick volume",
        pools: EVERY,
        others: "",
        tests: &["thick::a_discard_takes_no_space_from_a_thick_volume"],
    },
    Row {
        fault: "D4c: btrfs writes thick images to new blocks",
        pools: &["reflink", "btrfs"],
        others: "ext4 overwrites in place, and such a pool cannot be filled without filling the machine's disk",
        tests: &[
            "thick::a_thick_volume_is_overwritten_on_a_full_pool",
            "thick::on_btrfs_thick_volumes_are_copied_and_thin_ones_share_blocks",
        ],
    },
    Row {
        fault: "D5: a restore answers OK with missing data",
        pools: &["copy"],
        others: "where blocks are shared a restore takes no time in which its source could go",
        tests: &["group::a_group_is_not_deleted_while_a_member_is_restored"],
    },
    Row {
        fault: "D6: an empty pool is served in place of the real one",
        pools: &["copy", "reflink"],
        others: "the identity is a file, whatever the filesystem",
        tests: &[
            "pools::an_empty_folder_is_not_served_in_place_of_a_pool_whose_disk_is_missing",
            "pools::other_pools_work_on_while_one_is_missing",
            "pools::a_pool_image_is_mounted_also_where_no_flag_asks_for_one",
            "pools::a_lost_disk_is_adopted_or_forgotten_by_a_person_only",
        ],
    },
    Row {
        fault: "D7: inline volumes leak when a publish fails",
        pools: &["copy"],
        others: "an inline volume is created, staged and deleted as any other",
        tests: &[
            "inline::an_inline_volume_that_cannot_be_published_leaves_nothing",
            "inline::an_inline_volume_that_fails_at_any_step_leaves_nothing_and_a_retry_works",
            "inline::inline_volumes_are_listed_and_bounded_in_size_and_number",
            "targets::an_inline_volume_at_a_target_of_others_is_refused_and_leaves_nothing",
        ],
    },
    Row {
        fault: "D8: a kill in the replay of a read-only journal leaves a writable mount",
        pools: &["copy"],
        others: KERNEL,
        tests: &["devices::a_replay_that_was_cut_short_leaves_no_writable_mount"],
    },
    Row {
        fault: "D9: a mounted volume is deleted after its state was rebuilt",
        pools: EVERY,
        others: "",
        tests: &["devices::a_mounted_volume_is_not_deleted_although_no_record_knows_the_mount"],
    },
    Row {
        fault: "D10: any local user reads images",
        pools: &["copy", "reflink"],
        others: "modes are set by name, whatever the filesystem",
        tests: &[
            "private::a_pool_is_readable_by_root_alone_whatever_the_umask_and_also_when_it_was_not",
            "private::a_folder_that_others_use_too_keeps_its_mode",
        ],
    },
    Row {
        fault: "D11: NodeExpandVolume does not round",
        pools: &["copy"],
        others: "the size is rounded before the pool is asked",
        tests: &["grow::a_node_expansion_rounds_as_the_controller_does"],
    },
    Row {
        fault: "D12: a clone is silently empty after two crashes",
        pools: &["copy", "reflink"],
        others: COPYING,
        tests: &[
            "copies::a_clone_begun_before_its_source_was_formatted_keeps_the_data_written_since",
            "copies::a_copy_of_a_volume_whose_format_was_cut_is_never_wiped",
        ],
    },
    Row {
        fault: "D13: GetCapacity misleads",
        pools: &["copy", "reflink"],
        others: COPYING,
        tests: &[
            "full::what_capacity_says_can_be_had_and_no_byte_more",
            "full::a_full_pool_tells_that_nothing_can_be_made_thin_or_thick_and_why",
            "full::a_snapshot_that_is_a_copy_takes_its_space_once",
            "thin::the_largest_volume_that_capacity_tells_can_be_made_and_none_larger",
        ],
    },
    Row {
        fault: "D14: a read-only block target beside a writer shows old data",
        pools: &["copy"],
        others: KERNEL,
        tests: &["devices::readers_and_writers_of_a_block_volume_are_never_on_two_devices"],
    },
    Row {
        fault: "D15: small faults of teardown, texts and cost",
        pools: &["copy"],
        others: KERNEL,
        tests: &[
            "devices::a_volume_whose_loop_or_image_is_gone_is_unpublished_all_the_same",
            "grow::an_expansion_that_was_cut_is_finished_before_a_copy",
            "codes::what_is_turned_off_is_unimplemented",
            "full::a_full_pool_tells_that_nothing_can_be_made_thin_or_thick_and_why",
            "fields::mount_flags_are_heeded_and_unknown_ones_refused_with_the_kernels_reason",
        ],
    },
    Row {
        fault: "D16: faults found by reading",
        pools: &["copy", "reflink"],
        others: COPYING,
        tests: &[
            "pools::copies::a_source_in_use_stands_still_for_a_copy_to_another_pool",
            "pending::an_expansion_that_is_retried_with_a_smaller_size_keeps_the_larger",
            "copies::a_clone_that_goes_on_after_a_crash_is_as_large_as_its_source_is_now",
            "held::a_publish_of_a_volume_whose_image_was_replaced_in_use_is_refused",
        ],
    },
];

/// The tests of this program.
fn tests() -> BTreeSet<String> {
    let this = std::env::current_exe().unwrap();
    let listed = Command::new(this).args(["--list", "--format", "terse"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

#[test]
fn every_fault_is_held_by_a_test_on_each_pool_to_which_it_applies() {
    let tests = tests();
    for Row { fault, pools, others, tests: named } in ROWS {
        assert!(!named.is_empty(), "{fault}: no test");
        for test in *named {
            assert!(tests.contains(*test), "{fault}: there is no test {test}");
        }
        let all = EVERY.iter().all(|pool| pools.contains(pool));
        assert_eq!(all, others.is_empty(), "{fault}: say why other pools need no test");
    }
    let number = |row: &Row| -> u32 {
        let digits = row.fault.chars().skip(1).take_while(char::is_ascii_digit);
        digits.collect::<String>().parse().unwrap()
    };
    assert_eq!(ROWS.iter().map(number).collect::<BTreeSet<_>>(), (1..=16).collect());
}

/// What docs/driver.md promises in its table names the test of each promise.
#[test]
fn every_promise_of_the_docs_names_a_test_that_exists() {
    let docs = wharf_testkit::peers::repository().join("docs/driver.md");
    let text = std::fs::read_to_string(docs).unwrap();
    let tests = tests();
    let table = text.split("### What is promised").nth(1).expect("the table of promises");
    let rows = table.lines().skip_while(|line| !line.starts_with("|---"));
    let rows: Vec<_> = rows.skip(1).take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() >= 12, "{} promises", rows.len());
    for row in rows {
        let column = row.trim_end_matches('|').rsplit('|').next().unwrap();
        let named: Vec<_> = column.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "no test is named: {row}");
        for test in named {
            let name = format!("::{test}");
            assert!(tests.iter().any(|it| it.ends_with(&name)), "there is no test {test}: {row}");
        }
    }
}
