//! The ledger: how many tasks of each token run at once, recorded for tests.
//!
//! A token that is minted while a ledger is open has an account, and so has every token derived from it. Each body counts
//! its thread in the account of the token whose section it belongs to, and in those above. A thread counts once an account,
//! however deep its bodies nest: a body that leads a section is one task with its share of that section. Without an open
//! ledger, tokens have no account and bodies count nothing.

use crate::flow::mark;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Tokens over their budget beyond this many are not listed.
const LISTED: usize = 8;

/// The open ledgers, the innermost last.
static OPEN: Mutex<Vec<Arc<Book>>> = Mutex::new(Vec::new());
/// Whether there is any: all that minting a token reads without one.
static ANY: AtomicBool = AtomicBool::new(false);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What one ledger has recorded.
#[derive(Default)]
struct Book {
    roots: Mutex<Vec<Arc<Account>>>,
    /// Accounts that were over their budget: how the token is called, and by how many tasks it was used at once.
    exceeded: Mutex<Vec<(String, usize)>>,
}

impl Book {
    fn note_exceeded(&self, account: &Account, live: usize) {
        let mut exceeded = lock(&self.exceeded);
        if let Some((_, most)) = exceeded.iter_mut().find(|(name, _)| *name == account.name) {
            *most = live.max(*most);
        } else if exceeded.len() < LISTED {
            exceeded.push((account.name.clone(), live));
        }
    }
}

/// The tasks of one token, and of the tokens below it.
pub(crate) struct Account {
    book: Arc<Book>,
    above: Option<Arc<Account>>,
    name: String,
    budget: NonZeroUsize,
    tally: Mutex<Tally>,
}

#[derive(Default)]
struct Tally {
    /// How many bodies each thread is in.
    depths: HashMap<usize, usize>,
    most: usize,
    tasks: u64,
}

impl Account {
    /// The account of a new root token, if a ledger is open.
    pub(crate) fn of_root(name: &str, budget: NonZeroUsize) -> Option<Arc<Account>> {
        if !ANY.load(Ordering::Relaxed) {
            return None;
        }
        let book = Arc::clone(lock(&OPEN).last()?);
        let account = Arc::new(Account::new(Arc::clone(&book), None, name, budget));
        lock(&book.roots).push(Arc::clone(&account));
        Some(account)
    }

    /// The account of a token derived from the one that has this account.
    pub(crate) fn derive(self: &Arc<Account>, name: &str, budget: NonZeroUsize) -> Arc<Account> {
        Arc::new(Account::new(Arc::clone(&self.book), Some(Arc::clone(self)), name, budget))
    }

    fn new(book: Arc<Book>, above: Option<Arc<Account>>, name: &str, budget: NonZeroUsize) -> Account {
        Account { book, above, name: name.to_owned(), budget, tally: Mutex::default() }
    }

    /// This account and those above it.
    fn chain(&self) -> impl Iterator<Item = &Account> {
        std::iter::successors(Some(self), |account| account.above.as_deref())
    }

    /// Counts the calling thread as a task until the guard is dropped.
    pub(crate) fn enter(&self) -> Task<'_> {
        let thread = mark();
        for account in self.chain() {
            let mut tally = lock(&account.tally);
            tally.tasks += 1;
            *tally.depths.entry(thread).or_default() += 1;
            let live = tally.depths.len();
            tally.most = tally.most.max(live);
            drop(tally);
            if live > account.budget.get() {
                account.book.note_exceeded(account, live);
            }
        }
        Task { account: self, thread }
    }
}

/// A task that runs.
pub(crate) struct Task<'a> {
    account: &'a Account,
    thread: usize,
}

impl Drop for Task<'_> {
    fn drop(&mut self) {
        for account in self.account.chain() {
            let depths = &mut lock(&account.tally).depths;
            if let Some(depth) = depths.get_mut(&self.thread) {
                *depth -= 1;
                if *depth == 0 {
                    depths.remove(&self.thread);
                }
            }
        }
    }
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
        lock(&OPEN).push(Arc::clone(&self.0));
        ANY.store(true, Ordering::Relaxed);
    }

    /// Gives recording back. What was recorded stays.
    fn close(&self) {
        let mut open = lock(&OPEN);
        open.retain(|book| !Arc::ptr_eq(book, &self.0));
        ANY.store(!open.is_empty(), Ordering::Relaxed);
    }

    /// The root tokens, in the order of their minting, as (name, budget, tasks, most at once, running now).
    fn roots(&self) -> Vec<(String, usize, u64, usize, usize)> {
        let row = |account: &Arc<Account>| {
            let tally = lock(&account.tally);
            (account.name.clone(), account.budget.get(), tally.tasks, tally.most, tally.depths.len())
        };
        lock(&self.0.roots).iter().map(row).collect()
    }

    /// The tokens, roots or derived, of which more tasks ran at once than their budget allows, as (name, tasks).
    fn exceeded(&self) -> Vec<(String, usize)> {
        lock(&self.0.exceeded).clone()
    }
}
