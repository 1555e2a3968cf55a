//! Tests that inject a kill, an error or a short write at a sample of a copy's system calls.

use libtest_mimic::Completion;
use nicstripe_testkit::{
    Outcome,
    crashes::{
        calls::{Sweep, Swept},
        case::Case,
        field::Field,
        tracer::{Fault, Plan, Seen, Which},
    },
    number, tests,
    trial::Test,
};
use nix::errno::Errno;

pub(crate) const TESTS: &[Test] = tests![
    a_kill_at_each_change_of_a_short_copy_leaves_what_a_rerun_finishes,
    a_kill_at_changes_of_a_tree_leaves_what_a_rerun_finishes,
    a_sync_that_fails_is_never_taken_for_one_that_did_not,
    a_call_that_fails_is_told_and_a_rerun_ends_right,
    a_disk_that_takes_nothing_any_more_is_told_and_a_rerun_ends_right,
    a_write_that_takes_only_a_half_is_gone_on_with,
    a_file_that_has_its_name_needs_no_second_copy,
    a_part_file_that_has_its_final_mode_is_gone_on_with,
    names_that_a_killed_tree_got_are_made_durable_by_the_rerun,
];

fn a_kill_at_each_change_of_a_short_copy_leaves_what_a_rerun_finishes() {
    sweep("put-short", Which::Changes, Fault::Kill, 1);
    sweep("get-short", Which::Changes, Fault::Kill, 1);
}

fn a_kill_at_changes_of_a_tree_leaves_what_a_rerun_finishes() {
    sweep("put-tree", Which::Changes, Fault::Kill, 29);
    // The attributes of a symbolic link are set before its rename, on a descriptor.
    sweep(
        "get-tree",
        Which::Shown("openat source/.link*part"),
        Fault::Kill,
        1,
    );
}

fn a_sync_that_fails_is_never_taken_for_one_that_did_not() {
    for case in ["put", "get-over", "put-in-place", "put-tree"] {
        let swept = sweep(case, Which::Syncs, Fault::Fail(Errno::EIO), 1);
        assert_eq!(swept.failed, swept.hits, "{case}");
    }
}

fn a_call_that_fails_is_told_and_a_rerun_ends_right() {
    sweep("put-short", Which::All, Fault::Fail(Errno::EIO), 3);
    sweep("get-short", Which::Changes, Fault::Fail(Errno::ENOSPC), 3);
    sweep("put-tree", Which::All, Fault::Fail(Errno::EIO), 29);
}

fn a_disk_that_takes_nothing_any_more_is_told_and_a_rerun_ends_right() {
    sweep("put", Which::Changes, Fault::FailFrom(Errno::ENOSPC), 23);
}

fn a_write_that_takes_only_a_half_is_gone_on_with() {
    for case in ["put-short", "put-tree"] {
        let swept = sweep(case, Which::Changes, Fault::Short, 7);
        assert_eq!(swept.failed, 0, "{case}");
    }
}

fn a_file_that_has_its_name_needs_no_second_copy() {
    for case in ["put", "get-over", "put-delta"] {
        // Kills after the rename, while the journal still exists.
        sweep(case, Which::Shown("fsync "), Fault::Kill, 1);
        sweep(
            case,
            Which::Shown("unlinkat .source*journal"),
            Fault::Kill,
            1,
        );
    }
}

fn a_part_file_that_has_its_final_mode_is_gone_on_with() {
    let (case, mut field) = (
        Case::named("put-read-only").unwrap(),
        Field::without_privilege(),
    );
    case.prepare(&field);
    let plan = Plan {
        which: Which::Shown("fsync .source*part"),
        at: 1,
        fault: Fault::Kill,
    };
    let (daemon, client) = field.start_traced(&case, plan, &["--timeout", "300ms"]);
    client.unwrap().finish();
    assert!(daemon.finish().1.hit.is_some());
    field.start_daemon();
    let rerun = field.cp(&case).expect(0);
    assert!(number(&rerun.document(), "resumed_bytes") > 0, "{rerun}");
    case.check_end(&field, "read-only");
}

fn names_that_a_killed_tree_got_are_made_durable_by_the_rerun() -> Completion {
    let (case, mut field) = (Case::named("put-tree").unwrap(), Field::new());
    case.prepare(&field);
    let (outcome, syncs) = watched(&mut field, &case, 0);
    outcome.expect(0);
    let Some(last) = syncs.calls.len().checked_sub(1) else {
        return Completion::ignored_with("a tmpfs has nothing to sync");
    };
    case.prepare(&field);
    // All entries have their final names by then.
    let (_, syncs) = watched(&mut field, &case, last + 1);
    if syncs.hit.is_some() {
        let (outcome, syncs) = watched(&mut field, &case, 0);
        outcome.expect(0);
        assert!(
            !syncs.calls.is_empty(),
            "all was there, and nothing was made durable"
        );
    }
    field.start_daemon();
    case.check_end(&field, "put-tree");
    Completion::Completed
}

/// Runs a copy and kills the daemon at the `at`th call of syncfs(2); at none if `at` is 0.
fn watched(field: &mut Field, case: &Case, at: usize) -> (Outcome, Seen) {
    let plan = Plan {
        which: Which::Shown("syncfs "),
        at,
        fault: Fault::Kill,
    };
    let (daemon, client) = field.start_traced(case, plan, &["--timeout", "300ms"]);
    let outcome = client.unwrap().finish();
    (outcome, daemon.end())
}

/// Repeats the named copy with `fault` injected at every `step`th system call selected by `which`.
fn sweep(case: &str, which: Which, fault: Fault, step: usize) -> Swept {
    let case = Case::named(case).unwrap();
    let swept = Sweep {
        case,
        which,
        fault,
        field: &mut Field::new(),
        is_told: true,
    }
    .run(step);
    eprintln!(
        "{}: {} of {} calls hit, {} copies failed",
        case.name, swept.hits, swept.calls, swept.failed
    );
    assert!(swept.hits > 0);
    swept
}
