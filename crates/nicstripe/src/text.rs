//! Text from peers, files and the system, made safe to log and to show.

mod causes;
pub(crate) mod logged;
mod shown;

pub use self::causes::chain;
pub(crate) use self::shown::{shown_interface, shown_name, shown_path};
