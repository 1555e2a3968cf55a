//! eBPF program that corrupts frames, with a one-element map that counts them.
//!
//! Unlike a classic BPF program, an eBPF program may change a frame. Loading one needs a privilege
//! that a user namespace does not give.

use std::{
    io,
    mem::size_of,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use crate::kernel::filter::{Share, TC_ACT_UNSPEC};

/// Loaded eBPF program that corrupts frames, and the map with its counter. The kernel keeps both
/// while this value or a filter refers to them.
#[derive(Debug)]
pub(crate) struct Corruptor {
    program: OwnedFd,
    counter: OwnedFd,
}

impl Corruptor {
    /// Loads a program that flips one random bit after the headers in this share of the frames.
    /// Frames shorter than [`LEAST_LEN`] bytes are not changed.
    ///
    /// # Errors
    ///
    /// EPERM without the privileges of real root, ENOSYS if the kernel lacks bpf(2).
    pub(crate) fn load(share: Share) -> io::Result<Self> {
        let counter = create_counter()?;
        let program = load(&program(share, counter.as_raw_fd()))?;
        Ok(Self { program, counter })
    }

    /// Returns the program's descriptor for use in a netlink message. It is valid while `self`
    /// exists.
    pub(crate) fn program(&self) -> i32 {
        self.program.as_raw_fd()
    }

    pub(crate) fn count(&self) -> io::Result<u64> {
        let (key, mut value) = (0_u32, 0_u64);
        let mut attribute = Element {
            map: self.counter.as_raw_fd().cast_unsigned(),
            padding: 0,
            key: address(&raw const key),
            value: address(&raw mut value),
            flags: 0,
        };
        // SAFETY: `attribute` is the command's structure, and points to a key and a value of the
        // map's sizes.
        unsafe { bpf(MAP_LOOKUP_ELEM, &mut attribute) }?;
        Ok(value)
    }
}

/// Leading fields of `union bpf_attr` for `BPF_MAP_CREATE` (`linux/bpf.h`).
#[repr(C)]
struct Map {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

/// Leading fields of `union bpf_attr` for `BPF_MAP_LOOKUP_ELEM`.
#[repr(C)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Leading fields of `union bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C)]
struct Program {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
}

fn create_counter() -> io::Result<OwnedFd> {
    let mut attribute = Map {
        kind: MAP_TYPE_ARRAY,
        key_size: 4,
        value_size: 8,
        max_entries: 1,
    };
    // SAFETY: `attribute` is the command's structure, and holds no address.
    unsafe { bpf_fd(MAP_CREATE, &mut attribute) }
}

fn load(instructions: &[u64]) -> io::Result<OwnedFd> {
    let mut attribute = Program {
        kind: PROG_TYPE_SCHED_CLS,
        instruction_count: u32::try_from(instructions.len()).unwrap_or(u32::MAX),
        instructions: address(instructions.as_ptr()),
        license: address(c"MIT".as_ptr()),
    };
    // SAFETY: `attribute` is the command's structure. It points to the stated number of
    // instructions and to a NUL-terminated string.
    unsafe { bpf_fd(PROG_LOAD, &mut attribute) }
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

/// Runs a bpf(2) command that returns a new descriptor.
///
/// # Safety
///
/// As for [`bpf`].
unsafe fn bpf_fd<A>(command: libc::c_int, attribute: &mut A) -> io::Result<OwnedFd> {
    // SAFETY: the caller guarantees the precondition of `bpf`.
    let fd = unsafe { bpf(command, attribute) }?;
    // SAFETY: the command succeeded and creates descriptors, so this one is new and has no other
    // owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Calls bpf(2).
///
/// # Safety
///
/// `attribute` must be the command's part of `union bpf_attr`, and its addresses must be valid for
/// the command.
unsafe fn bpf<A>(command: libc::c_int, attribute: &mut A) -> io::Result<i32> {
    // SAFETY: the kernel reads at most the given size, and the caller guarantees the addresses.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attribute, size_of::<A>()) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(i32::try_from(result).unwrap_or(i32::MAX))
    }
}

/// Returns the instructions of the program that corrupts frames
/// (`Documentation/bpf/standardization/instruction-set.rst`).
///
/// Register R6 holds the frame and R7 the offset of the changed byte, which is copied to the stack.
/// A frame that cannot be written passes unchanged and is not counted.
fn program(share: Share, counter: i32) -> Vec<u64> {
    let mut program = Assembly::default();
    program.push(MOV_REG, 6, 1, 0, 0);
    program.call(GET_PRANDOM_U32);
    program.leave_if(JGE32, 0, share.bound().cast_signed());
    program.push(LOAD_U32, 7, 6, FRAME_LEN, 0);
    program.leave_if(JLT, 7, LEAST_LEN);
    // place = HEADERS + random % (len - HEADERS)
    program.push(SUB, 7, 0, 0, HEADERS);
    program.call(GET_PRANDOM_U32);
    program.push(MOD_REG, 0, 7, 0, 0);
    program.push(ADD, 0, 0, 0, HEADERS);
    program.push(MOV_REG, 7, 0, 0, 0);
    program.byte_arguments();
    program.call(SKB_LOAD_BYTES);
    program.leave_if(JNE, 0, 0);
    // byte ^= 1 << (random & 7)
    program.call(GET_PRANDOM_U32);
    program.push(AND, 0, 0, 0, 7);
    program.push(MOV, 1, 0, 0, 1);
    program.push(LSH_REG, 1, 0, 0, 0);
    program.push(LOAD_U8, 2, 10, BYTE, 0);
    program.push(XOR_REG, 2, 1, 0, 0);
    program.push(STORE_U8, 10, 2, BYTE, 0);
    // Leave a checksum for hardware offload as it is: TCP assumes that its content is correct.
    program.byte_arguments();
    program.push(MOV, 5, 0, 0, 0);
    program.call(SKB_STORE_BYTES);
    program.leave_if(JNE, 0, 0);
    // counter[0] += 1
    program.push(STORE_IMMEDIATE_U32, 10, 0, KEY, 0);
    program.push(LOAD_64, 1, PSEUDO_MAP_FD, 0, counter);
    program.push(0, 0, 0, 0, 0);
    program.push(MOV_REG, 2, 10, 0, 0);
    program.push(ADD, 2, 0, 0, i32::from(KEY));
    program.call(MAP_LOOKUP);
    program.leave_if(JEQ, 0, 0);
    program.push(MOV, 1, 0, 0, 1);
    program.push(ATOMIC_U64, 0, 1, 0, 0);
    program.leave()
}

/// eBPF program under construction: its instructions, and the indexes of those that jump to the
/// end.
#[derive(Default)]
struct Assembly {
    instructions: Vec<u64>,
    jumps: Vec<usize>,
}

impl Assembly {
    /// Appends a `struct bpf_insn`: code, target and source register, offset, operand.
    fn push(&mut self, code: u8, to: u8, from: u8, offset: i16, operand: i32) {
        let registers = if cfg!(target_endian = "little") {
            to | (from << 4)
        } else {
            (to << 4) | from
        };
        let [o0, o1] = offset.to_ne_bytes();
        let [k0, k1, k2, k3] = operand.to_ne_bytes();
        self.instructions.push(u64::from_ne_bytes([
            code, registers, o0, o1, k0, k1, k2, k3,
        ]));
    }

    fn call(&mut self, function: i32) {
        self.push(CALL, 0, 0, 0, function);
    }

    fn leave_if(&mut self, code: u8, register: u8, operand: i32) {
        self.jumps.push(self.instructions.len());
        self.push(code, register, 0, 0, operand);
    }

    /// Sets the arguments R1 to R4 of a call that reads or writes the byte: the frame, the offset
    /// in it, the byte's address on the stack, and its length of 1.
    fn byte_arguments(&mut self) {
        self.push(MOV_REG, 1, 6, 0, 0);
        self.push(MOV_REG, 2, 7, 0, 0);
        self.push(MOV_REG, 3, 10, 0, 0);
        self.push(ADD, 3, 0, 0, i32::from(BYTE));
        self.push(MOV, 4, 0, 0, 1);
    }

    /// Appends the end of the program, and resolves all jumps to it.
    fn leave(mut self) -> Vec<u64> {
        let end = self.instructions.len();
        self.push(MOV, 0, 0, 0, TC_ACT_UNSPEC.cast_signed());
        self.push(EXIT, 0, 0, 0, 0);
        for at in self.jumps {
            let mut bytes = self.instructions[at].to_ne_bytes();
            let offset = i16::try_from(end - at - 1).unwrap_or(i16::MAX);
            bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
            self.instructions[at] = u64::from_ne_bytes(bytes);
        }
        self.instructions
    }
}

/// Minimum length of a frame to corrupt, in bytes; excludes ARP, acknowledgements and handshakes.
pub(crate) const LEAST_LEN: i32 = 600;
/// Maximum length of Ethernet, IPv6 and TCP headers with all options, in bytes and rounded up.
const HEADERS: i32 = 128;

/// Byte offset of the frame's length in `struct __sk_buff`.
const FRAME_LEN: i16 = 0;
/// Stack offset of the changed byte.
const BYTE: i16 = -8;
const KEY: i16 = -16;

const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const PROG_LOAD: libc::c_int = 5;
const MAP_TYPE_ARRAY: u32 = 2;
const PROG_TYPE_SCHED_CLS: u32 = 3;

const MAP_LOOKUP: i32 = 1;
const GET_PRANDOM_U32: i32 = 7;
const SKB_STORE_BYTES: i32 = 9;
const SKB_LOAD_BYTES: i32 = 26;

const MOV: u8 = 0xb7;
const MOV_REG: u8 = 0xbf;
const ADD: u8 = 0x07;
const SUB: u8 = 0x17;
const AND: u8 = 0x57;
const MOD_REG: u8 = 0x9f;
const LSH_REG: u8 = 0x6f;
const XOR_REG: u8 = 0xaf;
const LOAD_U8: u8 = 0x71;
const LOAD_U32: u8 = 0x61;
const STORE_U8: u8 = 0x73;
const STORE_IMMEDIATE_U32: u8 = 0x62;
const LOAD_64: u8 = 0x18;
const PSEUDO_MAP_FD: u8 = 1;
const ATOMIC_U64: u8 = 0xdb;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const JEQ: u8 = 0x15;
const JNE: u8 = 0x55;
const JLT: u8 = 0xa5;
/// Jump of the 32-bit class (`BPF_JMP32 | BPF_JGE`), which compares the operand as an unsigned
/// 32-bit number.
const JGE32: u8 = 0x36;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_jump_of_the_program_leads_to_its_end() {
        let share = Share::new(0.5).unwrap();
        let program = program(share, 3);
        let jumps = program.iter().enumerate().filter(|(_, instruction)| {
            [JEQ, JNE, JLT, JGE32].contains(&instruction.to_ne_bytes()[0])
        });
        let targets: Vec<usize> = jumps
            .map(|(at, instruction)| {
                let bytes = instruction.to_ne_bytes();
                at + 1 + usize::try_from(i16::from_ne_bytes([bytes[2], bytes[3]])).unwrap()
            })
            .collect();
        assert_eq!(targets, [program.len() - 2; 5]);
    }
}
