//! Jobs of the receiver on the I/O threads.

use std::{
    ops::ControlFlow,
    sync::{Arc, atomic::AtomicBool, mpsc},
};

use super::completion::Completion;
use crate::file::IoPool;
use crate::tree::channel::ReceiverInput;

/// Starts jobs on the I/O threads, whose results arrive as inputs of the receiver.
#[derive(Clone)]
pub(super) struct Jobs {
    pub(super) pool: IoPool,
    pub(super) inputs: mpsc::Sender<ReceiverInput>,
}

impl Jobs {
    /// Runs a job, which reports its results with its argument.
    pub(super) fn run(&self, job: impl FnOnce(&dyn Fn(Completion)) + Send + 'static) {
        let inputs = self.inputs.clone();
        self.pool
            .run(move || job(&|result| report(&inputs, result)));
    }

    /// Runs a long job like [`IoPool::run_in_turns`]; `done` makes its result.
    pub(super) fn run_in_turns<T: 'static, E: 'static>(
        &self,
        is_stopped: Arc<AtomicBool>,
        turn: impl FnMut() -> Result<ControlFlow<T>, E> + Send + 'static,
        done: impl FnOnce(Option<Result<T, E>>) -> Completion + Send + 'static,
    ) {
        let inputs = self.inputs.clone();
        let done = move |result| report(&inputs, done(result));
        self.pool.run_in_turns(is_stopped, turn, done);
    }
}

fn report(inputs: &mpsc::Sender<ReceiverInput>, result: Completion) {
    // Fails once the receiver is gone; the result is then not needed.
    let _ = inputs.send(ReceiverInput::Job(result));
}
