//! Metering of the benchmark frames on one connection: counts and drops loads, and reports echoes.

use std::time::Duration;

use super::frame::{EchoHeader, LoadHeader, Piece};
use crate::units::BitRate;

/// Benchmark load that a connection generates until it receives another order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadOrder {
    /// ID of the benchmark run.
    pub run: u32,
    /// Payload length of each load frame in bytes.
    pub message_bytes: u32,
    /// Maximum rate of this connection; `None` for no limit.
    pub rate: Option<BitRate>,
}

/// Order to measure round-trip times with a series of messages. Each message is sent after the
/// answer to the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PingOrder {
    /// Number of messages.
    pub count: u32,
    /// Size of a message in bytes. A message larger than [`MAX_ECHO`](crate::frame::MAX_ECHO) is
    /// sent as load frames of the run, followed by an empty echo request.
    pub bytes: u64,
    /// ID of the benchmark run.
    pub run: u32,
    /// Duration of the series, after which no further message is sent.
    pub longest: Duration,
}

/// Benchmark traffic that a session accepts on its connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadGate {
    /// ID of the active run, whose received payload is counted; `None` without an active run.
    pub counted: Option<u32>,
    /// Highest run ID that both ends have agreed to; 0 before the first run. A load with a higher
    /// ID violates the protocol.
    pub latest: u32,
    /// True once a benchmark has been admitted. The peer must not send echoes before.
    pub is_open: bool,
}

/// Result of metering part of a load or echo frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metered {
    /// Neither payload of the active run nor a complete echo.
    Nothing,
    /// Number of payload bytes received for the active run.
    Counted(u64),
    /// Complete echo request. The reply must have the same token and length.
    Asked(EchoHeader),
    /// Complete reply to an echo request.
    Answered(EchoHeader),
}

/// Meter of the load and echo frames that arrive on one connection.
#[derive(Debug, Default)]
pub struct LoadMeter {
    frame: Option<Under>,
    /// Payload bytes of ended runs, received since the last load of the active run.
    stale: u64,
}

/// Load or echo frame whose payload is being received.
#[derive(Debug, Clone, Copy)]
enum Under {
    Load(LoadHeader),
    Echo(EchoHeader),
}

/// Maximum payload, in bytes, that a connection may receive for ended runs. The peer may send it
/// before it learns of a run's end.
///
/// With two busy processors at 38 Gbit/s, the peer needed more than 0.06 s to stop (measured: a
/// limit of 256 MiB was too low). This limit corresponds to 0.9 s.
pub const MOST_STALE: u64 = 4 << 30;

/// Load or echo frame that the session does not permit. The receiver must end the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The load belongs to a run that has not begun.
    #[error("peer sent load of run {run}, which has not begun")]
    NotBegun {
        /// ID of the run in the frame.
        run: u32,
    },
    /// An echo frame arrived before a benchmark was admitted.
    #[error("peer sent an echo without a bench")]
    NoBench,
    /// More than [`MOST_STALE`] bytes arrived for ended runs.
    #[error("peer sent more than {MOST_STALE} bytes of ended runs")]
    Stale,
}

impl LoadMeter {
    /// Meters part of a load or echo frame. Ignores other frame types.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError`] if `gate` does not permit the frame.
    pub fn on_piece(&mut self, piece: &Piece<'_>, gate: LoadGate) -> Result<Metered, LoadError> {
        match *piece {
            Piece::Load(header) if header.run > gate.latest || header.run == 0 => {
                Err(LoadError::NotBegun { run: header.run })
            }
            Piece::Load(header) => {
                self.frame = Some(Under::Load(header));
                Ok(Metered::Nothing)
            }
            Piece::Echo(_) if !gate.is_open => Err(LoadError::NoBench),
            Piece::Echo(header) if header.len == 0 => Ok(Self::echoed(header)),
            Piece::Echo(header) => {
                self.frame = Some(Under::Echo(header));
                Ok(Metered::Nothing)
            }
            Piece::Filler { bytes, left } => self.on_filler(bytes.len() as u64, left, gate),
            _ => Ok(Metered::Nothing),
        }
    }

    fn on_filler(&mut self, bytes: u64, left: usize, gate: LoadGate) -> Result<Metered, LoadError> {
        match self.frame {
            Some(Under::Load(header)) if gate.counted == Some(header.run) => {
                self.stale = 0;
                Ok(Metered::Counted(bytes))
            }
            Some(Under::Load(_)) => {
                self.stale += bytes;
                if self.stale > MOST_STALE {
                    Err(LoadError::Stale)
                } else {
                    Ok(Metered::Nothing)
                }
            }
            Some(Under::Echo(header)) if left == 0 => Ok(Self::echoed(header)),
            _ => Ok(Metered::Nothing),
        }
    }

    fn echoed(header: EchoHeader) -> Metered {
        if header.reply {
            Metered::Answered(header)
        } else {
            Metered::Asked(header)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: LoadGate = LoadGate {
        counted: Some(2),
        latest: 2,
        is_open: true,
    };

    fn filler(
        meter: &mut LoadMeter,
        len: usize,
        left: usize,
        gate: LoadGate,
    ) -> Result<Metered, LoadError> {
        let bytes = &vec![0; len];
        meter.on_piece(&Piece::Filler { bytes, left }, gate)
    }

    fn load(
        meter: &mut LoadMeter,
        run: u32,
        len: u32,
        gate: LoadGate,
    ) -> Result<Metered, LoadError> {
        meter.on_piece(&Piece::Load(LoadHeader { run, len }), gate)?;
        filler(meter, len as usize, 0, gate)
    }

    #[test]
    fn only_the_run_under_way_counts() {
        let uncounted = LoadGate {
            counted: None,
            ..OPEN
        };
        let mut meter = LoadMeter::default();
        for (run, gate, expected) in [
            (2, OPEN, Ok(Metered::Counted(10))),
            (1, OPEN, Ok(Metered::Nothing)),
            (2, uncounted, Ok(Metered::Nothing)),
            (3, OPEN, Err(LoadError::NotBegun { run: 3 })),
            (0, LoadGate::default(), Err(LoadError::NotBegun { run: 0 })),
        ] {
            assert_eq!(load(&mut meter, run, 10, gate), expected, "{run}");
        }
    }

    #[test]
    fn a_run_that_is_over_may_not_go_on_for_ever() {
        let mut meter = LoadMeter::default();
        let mebibyte = 1 << 20;
        for _ in 0..MOST_STALE >> 20 {
            assert_eq!(load(&mut meter, 1, mebibyte, OPEN), Ok(Metered::Nothing));
        }
        assert_eq!(load(&mut meter, 1, 1, OPEN), Err(LoadError::Stale));
        assert_eq!(load(&mut meter, 2, 1, OPEN), Ok(Metered::Counted(1)));
        assert_eq!(
            load(&mut meter, 1, 1, OPEN),
            Ok(Metered::Nothing),
            "a new run has data in flight at its end too"
        );
    }

    #[test]
    fn an_echo_is_whole_with_its_last_byte_and_needs_a_bench() {
        let mut meter = LoadMeter::default();
        let echo = |reply, len| EchoHeader {
            token: 1,
            reply,
            len,
        };
        let (ask, answer) = (echo(false, 3), echo(true, 0));
        let refused = meter.on_piece(&Piece::Echo(ask), LoadGate::default());
        assert_eq!(refused, Err(LoadError::NoBench));
        let begun = meter.on_piece(&Piece::Echo(ask), OPEN);
        assert_eq!(begun, Ok(Metered::Nothing));
        assert_eq!(filler(&mut meter, 2, 1, OPEN), Ok(Metered::Nothing));
        assert_eq!(filler(&mut meter, 1, 0, OPEN), Ok(Metered::Asked(ask)));
        let answered = meter.on_piece(&Piece::Echo(answer), OPEN);
        assert_eq!(answered, Ok(Metered::Answered(answer)));
    }
}
