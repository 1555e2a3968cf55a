//! Tasks and jobs with an owner: it waits for their end, or aborts them.

use std::{
    ops::{Deref, DerefMut},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    sync::watch,
    task::{JoinError, JoinHandle},
};

/// Count of running tasks and jobs. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct TaskTracker(Arc<watch::Sender<usize>>);

/// Running task or job, until dropped.
#[derive(Debug)]
pub(crate) struct TaskToken(Arc<watch::Sender<usize>>);

impl TaskTracker {
    pub(crate) fn token(&self) -> TaskToken {
        self.0.send_modify(|running| *running += 1);
        TaskToken(self.0.clone())
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let token = self.token();
        tokio::spawn(async move {
            let _token = token;
            task.await
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self.0.borrow() == 0
    }

    /// Waits until none is running. Cancel safe.
    pub(crate) async fn wait(&self) {
        // The sender is in `self`, so the channel is open.
        let _ = self.0.subscribe().wait_for(|running| *running == 0).await;
    }
}

impl Drop for TaskToken {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}

/// Handle of a task that aborts it when dropped.
#[derive(Debug)]
pub(crate) struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> AbortOnDrop<T> {
    pub(crate) fn new(task: JoinHandle<T>) -> Self {
        Self(task)
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T> Deref for AbortOnDrop<T> {
    type Target = JoinHandle<T>;

    fn deref(&self) -> &JoinHandle<T> {
        &self.0
    }
}

impl<T> DerefMut for AbortOnDrop<T> {
    fn deref_mut(&mut self) -> &mut JoinHandle<T> {
        &mut self.0
    }
}

impl<T> Future for AbortOnDrop<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const LATE: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn a_tracker_waits_for_the_last_token_and_the_last_task() {
        let tracker = TaskTracker::default();
        timeout(LATE, tracker.wait()).await.unwrap();
        let (job, task) = (tracker.token(), tracker.clone().spawn(pending::<()>()));
        assert!(!tracker.is_empty() && timeout(SOON, tracker.wait()).await.is_err());
        drop(job);
        assert!(timeout(SOON, tracker.wait()).await.is_err());
        task.abort();
        timeout(LATE, tracker.wait()).await.unwrap();
        assert!(tracker.is_empty());
    }

    #[tokio::test]
    async fn a_task_ends_with_its_handle_or_returns_its_value() {
        let tracker = TaskTracker::default();
        drop(AbortOnDrop::new(tracker.spawn(pending::<()>())));
        timeout(LATE, tracker.wait()).await.unwrap();
        assert_eq!(
            AbortOnDrop::new(tracker.spawn(async { 7 })).await.unwrap(),
            7
        );
    }
}
