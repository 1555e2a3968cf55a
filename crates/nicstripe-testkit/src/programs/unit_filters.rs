//! System call filters of the systemd unit in `packaging/systemd`, applied without systemd.
//!
//! Follows `src/shared/seccomp-util.c` of systemd 252: which calls `RestrictSUIDSGID=` and its
//! neighbours reject, and with which error.

use std::{collections::BTreeMap, thread};

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// Runs `test` in a thread whose processes have the unit's filters.
pub fn under_the_filters_of_the_unit(test: impl FnOnce() + Send + 'static) {
    let filtered = thread::spawn(move || {
        for filter in filters() {
            seccompiler::apply_filter(&filter).expect("the kernel has seccomp filters");
        }
        test();
    });
    filtered
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn filters() -> [BpfProgram; 3] {
    // RestrictSUIDSGID= and RestrictNamespaces= cannot look into the structures of these calls.
    let missing: Rules = [libc::SYS_openat2, libc::SYS_clone3]
        .map(|call| (call, Vec::new()))
        .into();
    let mut forbidden: Rules = OUTSIDE_SYSTEM_SERVICE
        .iter()
        .map(|call| (*call, Vec::new()))
        .collect();
    for (call, mode) in [
        (libc::SYS_fchmod, 1),
        (libc::SYS_fchmodat, 2),
        (libc::SYS_mkdirat, 2),
        (libc::SYS_mknodat, 2),
        // With O_CREAT the mode is the fourth argument; without it the caller passes 0.
        (libc::SYS_openat, 3),
    ] {
        let bits = [libc::S_ISUID, libc::S_ISGID].map(|bit| has(mode, bit.into()));
        forbidden.insert(call, bits.into());
    }
    let exec = libc::PROT_EXEC as u64;
    let both = (libc::PROT_EXEC | libc::PROT_WRITE) as u64;
    forbidden.insert(libc::SYS_mmap, vec![has(2, both)]);
    forbidden.insert(libc::SYS_mprotect, vec![has(2, exec)]);
    forbidden.insert(libc::SYS_unshare, Vec::new());
    forbidden.insert(libc::SYS_setns, Vec::new());
    let families = [
        libc::AF_INET,
        libc::AF_INET6,
        libc::AF_NETLINK,
        libc::AF_UNIX,
    ];
    let others = families.map(|family| condition(0, SeccompCmpOp::Ne, family as u64));
    let sockets = [(libc::SYS_socket, vec![rule(others.into())])].into();
    [
        (missing, libc::ENOSYS),
        (forbidden, libc::EPERM),
        (sockets, libc::EAFNOSUPPORT),
    ]
    .map(|(rules, error)| {
        let arch = TargetArch::try_from(std::env::consts::ARCH).expect("seccompiler knows it");
        let action = SeccompAction::Errno(error as u32);
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch);
        filter
            .and_then(BpfProgram::try_from)
            .expect("the rules are valid")
    })
}

/// Returns a rule that matches if an argument has all these bits.
fn has(argument: u8, bits: u64) -> SeccompRule {
    rule(vec![condition(
        argument,
        SeccompCmpOp::MaskedEq(bits),
        bits,
    )])
}

fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> SeccompCondition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
        .expect("there are six arguments")
}

fn rule(conditions: Vec<SeccompCondition>) -> SeccompRule {
    SeccompRule::new(conditions).expect("it has a condition")
}

/// Calls outside `SystemCallFilter=@system-service`, some of each group.
const OUTSIDE_SYSTEM_SERVICE: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_init_module,
    libc::SYS_kexec_load,
    libc::SYS_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_ptrace,
    libc::SYS_reboot,
    libc::SYS_settimeofday,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_vhangup,
];
