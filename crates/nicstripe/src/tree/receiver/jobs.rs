//! Jobs of the receiver on the I/O threads.

use std::{
    ops::ControlFlow,
    sync::{Arc, atomic::AtomicBool, mpsc},
};

use super::{Completion, ReceiverInput};
use crate::file::IoPool;

/// Starts jobs on the I/O threads, whose results arrive as inputs of the receiver.
#[derive(Clone)]
pub(super) struct Jobs {
    pool: IoPool,
    results: Results,
}

/// Sender of a job's results.
#[derive(Clone)]
pub(super) struct Results(mpsc::Sender<ReceiverInput>);

impl Results {
    pub(super) fn report(&self, result: Completion) {
        // Fails once the receiver is gone; the result is then not needed.
        let _ = self.0.send(ReceiverInput::Job(result));
    }
}

impl Jobs {
    pub(super) fn new(pool: IoPool, inputs: mpsc::Sender<ReceiverInput>) -> Self {
        Self {
            pool,
            results: Results(inputs),
        }
    }

    pub(super) fn run(&self, job: impl FnOnce(&Results) + Send + 'static) {
        let results = self.results.clone();
        self.pool.run(move || job(&results));
    }

    /// Runs a long job like [`IoPool::run_in_turns`]; `done` makes its result.
    pub(super) fn run_in_turns<T: 'static, E: 'static>(
        &self,
        is_stopped: Arc<AtomicBool>,
        turn: impl FnMut() -> Result<ControlFlow<T>, E> + Send + 'static,
        done: impl FnOnce(Option<Result<T, E>>) -> Completion + Send + 'static,
    ) {
        let results = self.results.clone();
        self.pool.run_in_turns(is_stopped, turn, move |result| {
            results.report(done(result));
        });
    }
}
