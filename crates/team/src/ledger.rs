//! The ledger: how many tasks of each token run at once, recorded for tests.
//!
//! An [`Account`] belongs to one token. Each body counts its thread in the account of the token whose section it belongs to
//! and in those above, so a budget is checked at every depth. A thread counts once an account, however deep its bodies nest,
//! and not at all while it waits for its section as the leader. With the feature `ledger` every token of a pool has an
//! account; without it none has, and counting compiles to nothing. Accounts can be kept by hand without the feature.

use crate::fork::ForkLock;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::{self, ThreadId};

/// Tokens over their budget beyond this many are not listed.
const LISTED: usize = 8;

/// Accounts that were over their budget, of all root tokens that share it.
#[derive(Debug, Default)]
pub struct Exceeded(ForkLock<Vec<(String, usize)>>);

impl Exceeded {
    /// What the tokens are called, and the most tasks that ran on each at once.
    pub fn list(&self) -> Vec<(String, usize)> {
        self.0.lock().clone()
    }

    fn note(&self, name: &str, live: usize) {
        let mut listed = self.0.lock();
        if let Some((_, most)) = listed.iter_mut().find(|(listed, _)| listed == name) {
            *most = live.max(*most);
        } else if listed.len() < LISTED {
            listed.push((name.to_owned(), live));
        }
    }
}

/// The tasks of one token, and of the tokens below it.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroUsize;
/// use threadteam::ledger::Account;
///
/// let root = Account::root("root", NonZeroUsize::MIN, Default::default());
/// let child = root.derive("child", NonZeroUsize::MIN);
/// let task = child.enter();
/// assert_eq!((root.live(), child.live()), (1, 1));
/// drop(task);
/// assert_eq!((root.tasks(), root.most(), root.live()), (1, 1, 0));
/// ```
#[derive(Debug)]
pub struct Account {
    above: Option<Arc<Account>>,
    name: String,
    budget: NonZeroUsize,
    exceeded: Arc<Exceeded>,
    tally: ForkLock<Tally>,
}

impl Drop for Account {
    /// One after the other, not one inside the other: a chain of loans may be longer than a stack is deep.
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(mut account) = above.and_then(Arc::into_inner) {
            above = account.above.take();
        }
    }
}

#[derive(Debug, Default)]
struct Tally {
    /// How many bodies each thread is in.
    depths: HashMap<ThreadId, usize>,
    most: usize,
    tasks: u64,
}

impl Account {
    /// The account of a root token; what exceeds its budget, there or below, goes to `exceeded`.
    pub fn root(name: &str, budget: NonZeroUsize, exceeded: Arc<Exceeded>) -> Arc<Account> {
        Arc::new(Account { above: None, name: name.to_owned(), budget, exceeded, tally: ForkLock::default() })
    }

    /// The account of a token derived from the one that has this account.
    pub fn derive(self: &Arc<Account>, name: &str, budget: NonZeroUsize) -> Arc<Account> {
        let exceeded = Arc::clone(&self.exceeded);
        Arc::new(Account {
            above: Some(Arc::clone(self)),
            name: name.to_owned(),
            budget,
            exceeded,
            tally: ForkLock::default(),
        })
    }

    /// What the token is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many tasks may run at once.
    pub fn budget(&self) -> NonZeroUsize {
        self.budget
    }

    /// Calls of bodies so far, at every depth.
    pub fn tasks(&self) -> u64 {
        self.tally.lock().tasks
    }

    /// The most tasks that ran at once.
    pub fn most(&self) -> usize {
        self.tally.lock().most
    }

    /// The tasks that run now.
    pub fn live(&self) -> usize {
        self.tally.lock().depths.len()
    }

    /// Counts the calling thread as a task of this account and those above it until the guard is dropped.
    #[must_use]
    pub fn enter(self: &Arc<Account>) -> Task {
        let thread = thread::current().id();
        for account in self.chain() {
            let mut tally = account.tally.lock();
            tally.tasks += 1;
            account.count(&mut tally, thread, 1);
        }
        Task { account: Arc::clone(self), thread }
    }

    /// Takes the calling thread out of the counts until the guard is dropped: it leads a section, in which its share counts,
    /// and its waiting does not.
    #[must_use]
    pub fn pause(self: &Arc<Account>) -> Pause {
        let thread = thread::current().id();
        let depths = self.chain().map(|account| account.tally.lock().depths.remove(&thread).unwrap_or(0)).collect();
        Pause { account: Arc::clone(self), thread, depths }
    }

    /// This account and those above it.
    fn chain(&self) -> impl Iterator<Item = &Account> {
        std::iter::successors(Some(self), |account| account.above.as_deref())
    }

    fn count(&self, tally: &mut Tally, thread: ThreadId, depth: usize) {
        *tally.depths.entry(thread).or_default() += depth;
        let live = tally.depths.len();
        tally.most = tally.most.max(live);
        if live > self.budget.get() {
            self.exceeded.note(&self.name, live);
        }
    }
}

/// A task that runs.
#[derive(Debug)]
pub struct Task {
    account: Arc<Account>,
    thread: ThreadId,
}

impl Drop for Task {
    fn drop(&mut self) {
        for account in self.account.chain() {
            let depths = &mut account.tally.lock().depths;
            if let Some(depth) = depths.get_mut(&self.thread) {
                *depth -= 1;
                if *depth == 0 {
                    depths.remove(&self.thread);
                }
            }
        }
    }
}

/// A task whose thread leads a section.
#[derive(Debug)]
pub struct Pause {
    account: Arc<Account>,
    thread: ThreadId,
    /// How many bodies the thread was in, of the account and of those above it.
    depths: Vec<usize>,
}

impl Drop for Pause {
    fn drop(&mut self) {
        for (account, &depth) in self.account.chain().zip(&self.depths) {
            if depth > 0 {
                account.count(&mut account.tally.lock(), self.thread, depth);
            }
        }
    }
}

#[cfg(feature = "ledger")]
pub use roots::{exceeded, global_pool_unstarted, installs, live, max_live, name, tasks};

/// The accounts of tokens, by the number of their root.
#[cfg(feature = "ledger")]
mod roots {
    use super::{Account, Exceeded};
    use crate::fork::ForkLock;
    use std::num::NonZeroUsize;
    use std::sync::Arc;

    /// One a root token, in the order of their minting; they stay, since tests ask after the token is gone.
    static ROOTS: ForkLock<Vec<Arc<Account>>> = ForkLock::new(Vec::new());

    /// A new root token's number and account.
    pub(crate) fn mint(budget: NonZeroUsize) -> (u64, Arc<Account>) {
        let mut roots = ROOTS.lock();
        let number = roots.len() as u64 + 1;
        let account = Account::root(&format!("root {number}"), budget, Arc::new(Exceeded::default()));
        roots.push(Arc::clone(&account));
        (number, account)
    }

    fn account(root: u64) -> Option<Arc<Account>> {
        ROOTS.lock().get(usize::try_from(root).ok()?.checked_sub(1)?).cloned()
    }

    /// The most tasks of root token `root` that ran at once; 0 for a number that no token has.
    ///
    /// # Examples
    ///
    /// ```
    /// use threadteam::{ledger, Exec, Pool};
    ///
    /// let pool = Pool::builder().threads(2).build()?;
    /// let exec = Exec::new(&pool, 2)?;
    /// let root = exec.ledger_root().unwrap();
    /// exec.fork(5, |_, child| child.fork(3, |_, _| ()));
    /// assert!((1..=2).contains(&ledger::max_live(root)));
    /// assert_eq!((ledger::live(root), ledger::tasks(root)), (0, 5 + 15));
    /// assert!(ledger::exceeded(root).is_empty());
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    pub fn max_live(root: u64) -> usize {
        account(root).map_or(0, |account| account.most())
    }

    /// The tasks of root token `root` that run now.
    pub fn live(root: u64) -> usize {
        account(root).map_or(0, |account| account.live())
    }

    /// Calls of bodies of root token `root` so far, at every depth.
    pub fn tasks(root: u64) -> u64 {
        account(root).map_or(0, |account| account.tasks())
    }

    /// What messages call root token `root`.
    pub fn name(root: u64) -> Option<String> {
        account(root).map(|account| account.name().to_owned())
    }

    /// The tokens, `root` or derived from it, of which more tasks ran at once than their budget allows: what they are called,
    /// and how many. Empty unless a promise was broken.
    pub fn exceeded(root: u64) -> Vec<(String, usize)> {
        account(root).map_or_else(Vec::new, |account| account.exceeded.list())
    }

    /// Times that work of `root` was moved to another thread to begin: 0, since a section begins on its caller. Kept for
    /// tests written for the published crate.
    pub fn installs(root: u64) -> usize {
        let _ = root;
        0
    }

    /// Whether no process-wide pool was started: always, since there is none. Kept for tests written for the published
    /// crate.
    pub fn global_pool_unstarted() -> bool {
        true
    }
}

/// A token's account, if tokens have any: nothing without the feature `ledger`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ticket(#[cfg(feature = "ledger")] Option<(u64, Arc<Account>)>);

/// A task or a pause of a token: nothing without the feature.
#[cfg(feature = "ledger")]
pub(crate) struct Counted<T>(Option<T>);

#[cfg(not(feature = "ledger"))]
pub(crate) struct Counted<T>(std::marker::PhantomData<T>);

impl Ticket {
    /// That of a token that nobody counts.
    pub(crate) const NONE: Ticket = Ticket(
        #[cfg(feature = "ledger")]
        None,
    );
}

/// The same, to refer to.
pub(crate) static NOBODY: Ticket = Ticket::NONE;

#[cfg(feature = "ledger")]
impl Ticket {
    /// A root token's.
    pub(crate) fn root(budget: NonZeroUsize) -> Ticket {
        Ticket(Some(roots::mint(budget)))
    }

    /// That of a token derived for `what`.
    pub(crate) fn derive(&self, what: &str, budget: NonZeroUsize) -> Ticket {
        let derived = |(root, account): &(u64, Arc<Account>)| {
            (*root, account.derive(&format!("{what} of {budget} from {}", account.name()), budget))
        };
        Ticket(self.0.as_ref().map(derived))
    }

    /// The calling thread runs a body.
    pub(crate) fn enter(&self) -> Counted<Task> {
        Counted(self.0.as_ref().map(|(_, account)| account.enter()))
    }

    /// The calling thread leads a section.
    pub(crate) fn lead(&self) -> Counted<Pause> {
        Counted(self.0.as_ref().map(|(_, account)| account.pause()))
    }

    pub(crate) fn root_number(&self) -> Option<u64> {
        self.0.as_ref().map(|(root, _)| *root)
    }
}

#[cfg(not(feature = "ledger"))]
impl Ticket {
    #[inline]
    pub(crate) fn root(_budget: NonZeroUsize) -> Ticket {
        Ticket()
    }

    #[inline]
    pub(crate) fn derive(&self, _what: &str, _budget: NonZeroUsize) -> Ticket {
        Ticket()
    }

    #[inline]
    pub(crate) fn enter(&self) -> Counted<Task> {
        Counted(std::marker::PhantomData)
    }

    #[inline]
    pub(crate) fn lead(&self) -> Counted<Pause> {
        Counted(std::marker::PhantomData)
    }
}
