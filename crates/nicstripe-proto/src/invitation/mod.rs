//! Invitations: two machines that do not know each other's keys prove that their users share a
//! short code, and exchange keys.
//!
//! The **inviter** shows a [`Code`] and waits. The **joiner** gets the code from its user, finds the
//! inviter by [`discovery`](crate::discovery) or at a known address, and connects. Over TLS, in
//! which either end accepts any key, both run a password-authenticated key exchange (PAKE). Each
//! then proves with a [`Confirmation`] that it derived the same secret on this very connection.
//!
//! ```text
//! joiner                         inviter
//!   Pake            ->                        number of the code, message of the PAKE
//!                   <-           Pake
//!   Confirm         ->                        the inviter has one guess: a wrong one ends it
//!                   <-  Confirm, Card
//!   Card            ->
//!   Done           <->           Done         after each has stored the other's key
//! ```
//!
//! Either end may send [`Refuse`] in place of a message, and closes the connection then.
//! [`encode`] and [`Reader`] convert between messages and bytes. The caller provides the PAKE, TLS
//! and the order of the messages; this module never sees a socket.

mod code;
mod confirm;
mod message;
mod words;

pub use self::{
    code::{Code, CodeError, MOST_CODE, Number},
    confirm::{Confirmation, Parties, Side},
    message::{
        Card, Confirm, MAX_BODY, MOST_HOST, Message, MessageError, PAKE_LEN, Pake, Purpose, Reader,
        Refusal, Refuse, encode,
    },
};

#[cfg(test)]
mod tests;
