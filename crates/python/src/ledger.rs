//! The ledger: how many tasks of each token run at once, recorded for tests.
//!
//! A token that is minted while a ledger is open has an [`Account`], and so has every token derived from it. Without an open
//! ledger, tokens have no account and bodies count nothing.

use pyo3::prelude::*;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use threadteam::ledger::Exceeded;
pub(crate) use threadteam::ledger::{Account, Task};
use threadteam::ForkLock;

/// The open ledgers, the innermost last.
static OPEN: ForkLock<Vec<Arc<Book>>> = ForkLock::new(Vec::new());
/// Whether there is any: all that minting a token reads without one. It changes under the lock; who opens a ledger mints after it.
static ANY: AtomicBool = AtomicBool::new(false);

/// What one ledger has recorded.
#[derive(Default)]
struct Book {
    roots: ForkLock<Vec<Arc<Account>>>,
    exceeded: Arc<Exceeded>,
}

/// The account of a new root token, if a ledger is open.
pub(crate) fn open_account(name: &str, budget: NonZeroUsize) -> Option<Arc<Account>> {
    if !ANY.load(Ordering::Relaxed) {
        return None;
    }
    let book = Arc::clone(OPEN.lock().last()?);
    let account = Account::root(name, budget, Arc::clone(&book.exceeded));
    book.roots.lock().push(Arc::clone(&account));
    Some(account)
}

/// Records the tasks of every token minted from `open` to `close`.
#[pyclass(frozen, name = "Ledger", module = "threadteam._native")]
pub(crate) struct PyLedger(Arc<Book>);

#[pymethods]
impl PyLedger {
    #[new]
    fn new() -> PyLedger {
        PyLedger(Arc::default())
    }

    /// Records the tokens minted from now on, instead of the ledger that did so far.
    fn open(&self) {
        let mut open = OPEN.lock();
        open.push(Arc::clone(&self.0));
        ANY.store(true, Ordering::Relaxed);
    }

    /// Gives recording back. What was recorded stays.
    fn close(&self) {
        let mut open = OPEN.lock();
        open.retain(|book| !Arc::ptr_eq(book, &self.0));
        ANY.store(!open.is_empty(), Ordering::Relaxed);
    }

    /// The root tokens, in the order of their minting, as (name, budget, tasks, most at once, running now).
    fn roots(&self) -> Vec<(String, usize, u64, usize, usize)> {
        let row = |account: &Arc<Account>| {
            (account.name().to_owned(), account.budget().get(), account.tasks(), account.most(), account.live())
        };
        self.0.roots.lock().iter().map(row).collect()
    }

    /// The tokens, roots or derived, of which more tasks ran at once than their budget allows, as (name, tasks).
    fn exceeded(&self) -> Vec<(String, usize)> {
        self.0.exceeded.list()
    }
}
