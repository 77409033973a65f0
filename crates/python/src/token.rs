//! The state machine of a token: live, inside an entry, lent, or dead.
//!
//! Rust's borrow rules say at compile time what this says at run time. A Python token holds the runtime's token with its
//! lifetime erased; every use goes through [`Token::enter`], [`Token::lend`] or [`Token::end`], which hold these rules:
//!
//! * `inner` is touched by whoever moved the state out of `LIVE`, until it moves on.
//! * What a root token borrows (pool or team) outlives it: the token holds the pool, and the pool ends its tokens before
//!   it closes or moves.
//! * What a loan borrows is its parent, which it holds and which stays `LENT` until the loan is dead.
//! * What a body's token borrows lives until the body returns, and the body ends it before that.

use crate::errors::raise;
use crate::flow::Flow;
use crate::home::Home;
use crate::ledger::{open_account, Account};
use crate::life;
use crate::pending;
use pyo3::prelude::*;
use std::cell::UnsafeCell;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use threadteam::{Bell, Exec, ForkLock};

const LIVE: u64 = 0;
/// In an entry: see [`Inside`].
const BUSY: u64 = 1;
/// Busy, and somebody waits for the end of the entry.
const AWAITED: u64 = 2;
const LENT: u64 = 3;
const DEAD: u64 = 4;

/// The process in which an entry began stands beside [`BUSY`] and [`AWAITED`] in one word: who finds another process there knows that
/// the entry stayed in the parent of a fork.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Inside(u32);

impl Inside {
    fn now() -> Inside {
        Inside(life::generation())
    }

    fn busy(self) -> u64 {
        u64::from(self.0) << 32 | BUSY
    }

    fn awaited(self) -> u64 {
        u64::from(self.0) << 32 | AWAITED
    }

    /// The entry that a state stands for, if any.
    fn of(state: u64) -> Option<Inside> {
        matches!(state as u32 as u64, BUSY | AWAITED).then_some(Inside((state >> 32) as u32))
    }
}

/// What [`Token::freeze`] found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frozen {
    /// A live token, which is the caller's now.
    Still,
    Dead,
    /// One that is lent, or inside an entry.
    Used,
}

/// Why a token is dead.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum End {
    /// `close()`, the end of a `with` block, or collection.
    Closed,
    /// The body that it was handed to has returned.
    Returned,
    /// Its pool closed or moved into a team, or its team was closed.
    PoolGone,
    /// The process was forked inside its entry.
    Forked,
}

/// Something that a token was lent to and that gives it back when it is closed.
pub(crate) trait Loan: Send + Sync {
    /// Ends the loan, the loans taken from it first. An entry that runs on it is waited for when `wait` says so, and is
    /// an error otherwise.
    fn end_loan(&self, py: Python<'_>, wait: bool) -> PyResult<()>;

    /// What it is lent to itself.
    fn lent_to(&self) -> Option<Arc<dyn Loan>>;

    /// In the child of a fork, while it has one thread: what a thread of the parent was about to give back comes back now.
    fn leave_parent(&self);
}

/// What gets its token back.
pub(crate) trait Lender: Send + Sync {
    /// The loan has ended.
    fn take_back(&self);

    /// The loan has ended, and had this reference. If it was the last one, what the lender itself was lent by: of a long chain of loans
    /// one ends after the other, not one inside the other, for which no stack would be large enough.
    fn take_back_and_end(self: Arc<Self>) -> Option<Arc<dyn Lender>>;
}

/// What a token holds: a runtime token whose lifetime is erased.
pub(crate) trait Held: Send + Sized + 'static {
    /// Participants that it stands for.
    fn slots(&self) -> NonZeroUsize;
    /// Whether its sections go to reserved members.
    fn has_members(&self) -> bool;
    /// What stands in for it while the interpreter ends and no worker may be asked.
    fn at_exit() -> Option<Self>;
}

impl Held for Exec<'static> {
    fn slots(&self) -> NonZeroUsize {
        self.budget()
    }

    fn has_members(&self) -> bool {
        self.carries_team()
    }

    fn at_exit() -> Option<Self> {
        Some(Exec::serial())
    }
}

/// A token, or a team's token, of erased lifetime.
pub(crate) struct Token<T: Held> {
    state: AtomicU64,
    /// Why it is dead, before `state` says that it is.
    end: AtomicU8,
    inner: UnsafeCell<Option<T>>,
    /// What the token is lent to, while `LENT`.
    loan: ForkLock<Option<(Weak<dyn Loan>, &'static str)>>,
    lender: ForkLock<Option<Arc<dyn Lender>>>,
    /// The section whose body was handed this token; null for roots and once dead. Read inside entries, written before the first and
    /// after the last.
    flow: AtomicPtr<Flow>,
    /// Where its tasks count, while a ledger records.
    account: Option<Arc<Account>>,
    /// The pool that it is a share of; none for the calling thread alone.
    pub(crate) home: Option<Arc<Home>>,
    /// What error messages call it.
    pub(crate) name: String,
    /// What they call the token that the first of the loans it stems from was taken of: a name does not grow with their number.
    origin: Arc<str>,
    pub(crate) budget: NonZeroUsize,
    pub(crate) carries_team: bool,
}

// SAFETY: `inner` is touched only by the thread that moved the state out of `LIVE`, with acquire and release orderings
// (see the module), and `T` is `Send`. Everything else is `Sync` by itself.
unsafe impl<T: Held> Sync for Token<T> {}

/// Wakes threads that wait for the end of an entry: one for all tokens, for it is rare.
static ENTRY_ENDED: Bell = Bell::new();

impl<T: Held> Token<T> {
    /// A root token.
    ///
    /// # Safety
    ///
    /// What `inner` borrows must live until the token is dead; `home` must see to it. `lease` is told of its end.
    pub(crate) unsafe fn root(
        inner: T,
        home: Option<Arc<Home>>,
        name: String,
        lease: Option<Arc<dyn Lender>>,
    ) -> Arc<Self> {
        let account = open_account(&name, inner.slots());
        let origin = Arc::from(name.as_str());
        Arc::new(Token::new(inner, home, (name, origin), std::ptr::null_mut(), lease, account))
    }

    /// The token that a body of `flow` is handed.
    ///
    /// # Safety
    ///
    /// What `inner` borrows, and `flow`, must live until the caller has ended the token.
    pub(crate) unsafe fn of_body(inner: T, home: Option<Arc<Home>>, name: String, flow: &Flow) -> Arc<Self> {
        let account = flow.account().map(|account| account.derive(&name, inner.slots()));
        let origin = Arc::from(name.as_str());
        Arc::new(Token::new(inner, home, (name, origin), std::ptr::from_ref(flow).cast_mut(), None, account))
    }

    fn new(
        inner: T,
        home: Option<Arc<Home>>,
        (name, origin): (String, Arc<str>),
        flow: *mut Flow,
        lender: Option<Arc<dyn Lender>>,
        account: Option<Arc<Account>>,
    ) -> Self {
        Token {
            state: AtomicU64::new(LIVE),
            end: AtomicU8::new(End::Closed as u8),
            loan: ForkLock::new(None),
            lender: ForkLock::new(lender),
            flow: AtomicPtr::new(flow),
            account,
            home,
            name,
            origin,
            budget: inner.slots(),
            carries_team: inner.has_members(),
            inner: UnsafeCell::new(Some(inner)),
        }
    }

    /// The section that handed out the token, for the sections that it enters.
    pub(crate) fn flow(&self) -> *const Flow {
        self.flow.load(Ordering::Relaxed)
    }

    /// Begins an entry: the token is this thread's until the guard is dropped.
    pub(crate) fn enter(&self, py: Python<'_>, operation: &str) -> PyResult<Entry<'_, T>> {
        let inside = Inside::now();
        // A token found dead: what ended it comes before.
        match self.state.compare_exchange(LIVE, inside.busy(), Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => Ok(Entry { token: self, inside }),
            Err(state) => Err(self.refuse(py, state, operation)),
        }
    }

    /// Whether a use would find the token dead.
    pub(crate) fn is_dead(&self) -> bool {
        self.state.load(Ordering::Acquire) == DEAD
    }

    #[cold]
    fn refuse(&self, py: Python<'_>, state: u64, operation: &str) -> PyErr {
        let name = &self.name;
        if Inside::of(state).is_some_and(|inside| inside != Inside::now()) {
            let message = format!(
                "{operation}: the process was forked while {name} was inside an entry, so the child cannot use it; take a \
                 new token from the pool"
            );
            return raise(py, "TokenExpired", message);
        }
        match state {
            DEAD if self.end.load(Ordering::Relaxed) == End::PoolGone as u8 => match &self.home {
                Some(home) => home.gone(py, operation),
                None => raise(py, "PoolClosed", format!("{operation}: the pool of {name} is closed")),
            },
            DEAD if self.end.load(Ordering::Relaxed) == End::Returned as u8 => {
                let message = format!(
                    "{operation}: {name} died when the body it was handed to returned; use a token inside its body only"
                );
                raise(py, "TokenExpired", message)
            }
            DEAD if self.end.load(Ordering::Relaxed) == End::Forked as u8 => {
                let message =
                    format!("{operation}: {name} was led by a thread of the parent process; take a new token");
                raise(py, "TokenExpired", message)
            }
            DEAD => {
                raise(py, "TokenExpired", format!("{operation}: {name} was closed; take a new token from the pool"))
            }
            LENT => {
                let how = self.loan.lock().as_ref().map_or("a loan", |(_, how)| how);
                let message = format!(
                    "{operation}: {name} is lent by {how}; use the loan, or close it first (a with block does)"
                );
                raise(py, "TokenLent", message)
            }
            _ => {
                let message = format!(
                    "{operation}: an entry is running on {name}; wait for its end, use the token that the body was given, \
                     or take another token from the pool"
                );
                raise(py, "TokenBusy", message)
            }
        }
    }

    /// Lends the token by `operation`: `make` derives the loan from it, and it stays `LENT` until the loan ends.
    ///
    /// `make` gets the token's place with an erased lifetime; what it makes must not outlive the loan.
    pub(crate) fn lend<U: Held>(
        self: &Arc<Self>,
        py: Python<'_>,
        operation: &'static str,
        what: &str,
        make: impl FnOnce(&'static mut T) -> PyResult<U>,
    ) -> PyResult<Arc<Token<U>>> {
        let name = format!("{what} {}", self.origin);
        let entry = self.enter(py, operation)?;
        // SAFETY: the entry has the token to itself, and until the loan is dead nobody else touches `inner`: the state
        // stays `LENT`, and the loan holds the token alive.
        let inner = unsafe { (*self.inner.get()).as_mut() };
        let made =
            make(inner.ok_or_else(|| raise(py, "TokenExpired", format!("{operation}: {} is dead", self.name)))?)?;
        let lender: Arc<dyn Lender> = Arc::clone(self) as Arc<dyn Lender>;
        let account = self.account.as_ref().map(|account| account.derive(&name, made.slots()));
        let names = (name, Arc::clone(&self.origin));
        let loan = Arc::new(Token::new(made, self.home.clone(), names, self.flow().cast_mut(), Some(lender), account));
        let weak: Weak<Token<U>> = Arc::downgrade(&loan);
        self.become_lent(entry, weak, operation);
        Ok(loan)
    }

    /// Lends the token to a scope that keeps nothing of it but the duty to give it back.
    pub(crate) fn lend_to_scope<L: Loan + 'static>(
        self: &Arc<Self>,
        py: Python<'_>,
        operation: &'static str,
        make: impl FnOnce(&mut Entry<'_, T>, GiveBack) -> PyResult<L>,
    ) -> PyResult<Arc<L>> {
        let mut entry = self.enter(py, operation)?;
        let give_back = GiveBack(ForkLock::new(Some(Arc::clone(self) as Arc<dyn Lender>)));
        let scope = Arc::new(make(&mut entry, give_back)?);
        let weak: Weak<L> = Arc::downgrade(&scope);
        self.become_lent(entry, weak, operation);
        Ok(scope)
    }

    fn become_lent(&self, entry: Entry<'_, T>, loan: Weak<dyn Loan>, operation: &'static str) {
        let earlier = self.loan.lock().replace((loan, operation));
        drop(earlier);
        entry.become_loan();
    }

    /// Ends the token, its loans first. Without `wait`, an entry that runs on it is an error.
    pub(crate) fn end(&self, py: Python<'_>, end: End, wait: bool) -> PyResult<()> {
        loop {
            let now = Inside::now();
            match self.state.compare_exchange(LIVE, now.busy(), Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => break,
                Err(DEAD) => return Ok(()),
                Err(LENT) => {
                    let mut loans: Vec<_> = self.lent_to().into_iter().collect();
                    while let Some(next) = loans.last().and_then(|loan| loan.lent_to()) {
                        loans.push(next);
                    }
                    // Its last reference is being dropped on another thread, which gives the token back.
                    if loans.is_empty() {
                        py.detach(std::thread::yield_now);
                    }
                    while let Some(loan) = loans.pop() {
                        loan.end_loan(py, wait)?;
                    }
                }
                Err(state) if Inside::of(state) != Some(now) => {
                    // The thread inside the entry stayed in the parent process, or is this one: take it over.
                    if self.state.compare_exchange(state, now.busy(), Ordering::Acquire, Ordering::Relaxed).is_ok() {
                        self.finish(End::Forked);
                        return Ok(());
                    }
                }
                Err(state) if !wait => return Err(self.refuse(py, state, "close()")),
                Err(_) => self.wait_for_entry(py)?,
            }
        }
        self.finish(end);
        Ok(())
    }

    /// Ends the token for a caller that has made it `BUSY`.
    fn finish(&self, end: End) {
        // SAFETY: the caller's exchange made `inner` this thread's.
        let inner = unsafe { (*self.inner.get()).take() };
        self.end.store(end as u8, Ordering::Relaxed);
        self.flow.store(std::ptr::null_mut(), Ordering::Relaxed);
        drop(inner);
        self.leave(DEAD);
        let lender = self.lender.lock().take();
        end_lenders(lender);
    }

    /// Ends the token of a body, which cannot return before: an exception on the way, a signal handler's, is kept for it.
    pub(crate) fn end_with_body(&self, py: Python<'_>) -> PyResult<()> {
        let mut outcome = Ok(());
        while !self.is_dead() {
            outcome = outcome.and(self.end(py, End::Returned, true));
        }
        outcome
    }

    /// Waits until no entry runs, looking for signals now and then.
    fn wait_for_entry(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let heard = ENTRY_ENDED.rings();
            let (busy, awaited) = (Inside::now().busy(), Inside::now().awaited());
            let waits = match self.state.compare_exchange(busy, awaited, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => true,
                Err(state) => state == awaited,
            };
            if waits {
                ENTRY_ENDED.wait(heard, Some(Duration::from_millis(50)));
            }
        });
        pending::run(py)
    }

    /// What it was lent by, to be told, now that its last reference is gone: no entry runs and no loan is open.
    fn let_go(&mut self) -> Option<Arc<dyn Lender>> {
        // First: it borrows from the lender.
        *self.inner.get_mut() = None;
        self.lender.get_mut().take()
    }

    /// Ends what made the token `BUSY`, and wakes who waits for that.
    fn leave(&self, next: u64) {
        let state = self.state.swap(next, Ordering::Release);
        if Inside::of(state).is_some_and(|inside| state == inside.awaited()) {
            ENTRY_ENDED.ring();
        }
    }

    /// Keeps the token still while its pool moves: entered, without the rules of an entry.
    pub(crate) fn freeze(&self) -> Frozen {
        match self.state.compare_exchange(LIVE, Inside::now().busy(), Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => Frozen::Still,
            Err(DEAD) => Frozen::Dead,
            Err(_) => Frozen::Used,
        }
    }

    /// Ends a freeze.
    ///
    /// # Safety
    ///
    /// The caller froze the token, and did not empty it.
    pub(crate) unsafe fn thaw(&self) {
        self.leave(LIVE);
    }

    /// Drops what a frozen token borrows.
    ///
    /// # Safety
    ///
    /// The caller froze the token, and will end or refill it.
    pub(crate) unsafe fn empty(&self) {
        // SAFETY: frozen by the caller, so nobody else touches it.
        unsafe { *self.inner.get() = None };
    }

    /// Ends a freeze; the token has `inner` now.
    ///
    /// # Safety
    ///
    /// The caller froze the token; `inner` as in [`root`](Self::root).
    pub(crate) unsafe fn refill(&self, inner: T) {
        // SAFETY: frozen by the caller, so nobody else touches it.
        unsafe { *self.inner.get() = Some(inner) };
        self.leave(LIVE);
    }

    /// Ends a frozen token.
    ///
    /// # Safety
    ///
    /// The caller froze the token.
    pub(crate) unsafe fn end_frozen(&self, end: End) {
        self.finish(end);
    }
}

impl<T: Held> Lender for Token<T> {
    fn take_back(&self) {
        let loan = self.loan.lock().take();
        drop(loan);
        // Not if the child of a fork has ended the token meanwhile.
        let _ = self.state.compare_exchange(LENT, LIVE, Ordering::Release, Ordering::Relaxed);
    }

    fn take_back_and_end(self: Arc<Self>) -> Option<Arc<dyn Lender>> {
        self.take_back();
        let mut token = Arc::into_inner(self)?;
        token.let_go()
    }
}

/// Ends a loan's claim to its lender, and that of each lender to its own that nobody else refers to.
fn end_lenders(mut lender: Option<Arc<dyn Lender>>) {
    while let Some(of_loan) = lender {
        lender = of_loan.take_back_and_end();
    }
}

impl<T: Held> Loan for Token<T> {
    fn end_loan(&self, py: Python<'_>, wait: bool) -> PyResult<()> {
        self.end(py, End::Closed, wait)
    }

    fn lent_to(&self) -> Option<Arc<dyn Loan>> {
        if self.state.load(Ordering::Acquire) != LENT {
            return None;
        }
        let loan = self.loan.lock().clone();
        loan.and_then(|(loan, _)| loan.upgrade())
    }

    fn leave_parent(&self) {
        if let Some(mut last) = self.lent_to() {
            while let Some(next) = last.lent_to() {
                last = next;
            }
            return last.leave_parent();
        }
        // A thread of the parent was dropping the last reference to the loan.
        if self.state.compare_exchange(LENT, Inside::now().busy(), Ordering::Acquire, Ordering::Relaxed).is_ok() {
            self.finish(End::Forked);
        }
    }
}

/// The duty to give a lent token back, once.
pub(crate) struct GiveBack(ForkLock<Option<Arc<dyn Lender>>>);

impl GiveBack {
    /// Gives it back; false when that was done before.
    pub(crate) fn now(&self) -> bool {
        let lender = self.0.lock().take();
        let given = lender.is_some();
        end_lenders(lender);
        given
    }
}

impl<T: Held> Drop for Token<T> {
    fn drop(&mut self) {
        end_lenders(self.let_go());
    }
}

/// An entry that runs on a token.
pub(crate) struct Entry<'a, T: Held> {
    token: &'a Token<T>,
    inside: Inside,
}

// SAFETY: the entry is the only access to `inner`, and `T` is `Send`.
unsafe impl<T: Held> Sync for Entry<'_, T> {}

impl<'a, T: Held> Entry<'a, T> {
    /// The runtime's token.
    pub(crate) fn inner(&mut self) -> &mut T {
        // SAFETY: the state is `BUSY` because of this entry, so nobody else touches `inner`; it is `Some` until `DEAD`.
        unsafe { (*self.token.inner.get()).as_mut().unwrap_unchecked() }
    }

    /// Whether the token's sections go to reserved members.
    pub(crate) fn has_members(&self) -> bool {
        self.token.carries_team
    }

    /// The pool that the token is a share of.
    pub(crate) fn home(&self) -> Option<&'a Arc<Home>> {
        self.token.home.as_ref()
    }

    /// The flow of a section that this entry leads on the calling thread.
    pub(crate) fn flow(&self) -> Flow {
        let pool = self.token.home.as_ref().map_or(0, |home| home.id);
        Flow::new(pool, self.token.flow(), self.token.account.clone())
    }
}

impl<T: Held> Entry<'_, T> {
    /// Ends the entry by lending the token.
    fn become_loan(self) {
        let token = self.token;
        std::mem::forget(self);
        token.leave(LENT);
    }
}

impl<T: Held> Drop for Entry<'_, T> {
    fn drop(&mut self) {
        // In the child of a fork inside the entry the state stays busy, of another process: see `refuse`.
        if self.inside == Inside::now() {
            self.token.leave(LIVE);
        }
    }
}
