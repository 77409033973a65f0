//! The token: `budget` slots of one pool. Its entries are in files of their own.

mod domains;
mod gangs;
mod jobs;
mod payoff;

pub(crate) use gangs::{erase_share, reserve_wait};
pub(crate) use jobs::JobCounter;

use crate::acquire::Hook;
use crate::domains::Reach;
use crate::error::{Error, Refused};
use crate::foreign::Foreign;
use crate::inner::Inner;
use crate::ledger::Ticket;
use crate::policy::WaitPolicy;
use crate::pool::Pool;
use crate::reserve::Lead;
use crate::trace::Trace;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// Where a token's sections run.
#[derive(Clone, Copy)]
enum Place<'p> {
    /// On the calling thread.
    Here,
    /// On the calling thread and free workers of the pool.
    Pool(&'p Pool),
    /// On the calling thread and these reserved workers of the pool.
    Team(&'p Pool, &'p [u16]),
    /// On another execution system.
    Foreign(&'p dyn Foreign),
}

/// A token for `budget` slots of one pool, the calling thread's included.
///
/// It is neither `Clone` nor `Copy`, and every parallel entry consumes it, so at most `budget` tasks of a root token run at
/// once at every depth. [`reborrow`](Exec::reborrow) lends it when one token drives several sections in turn.
///
/// ```compile_fail
/// fn duplicate<T: Clone>(_: T) {}
/// duplicate(threadteam::Exec::serial());
/// ```
/// ```compile_fail
/// fn duplicate<T: Copy>(_: T) {}
/// duplicate(threadteam::Exec::serial());
/// ```
/// ```compile_fail
/// let exec = threadteam::Exec::serial();
/// exec.fork(2, |_, _| ());
/// exec.fork(2, |_, _| ()); // the first entry consumed it
/// ```
/// ```compile_fail
/// let mut exec = threadteam::Exec::serial();
/// let lent = exec.reborrow();
/// exec.fork(2, |_, _| ()); // lent
/// lent.fork(2, |_, _| ());
/// ```
/// ```compile_fail
/// let mut escaped = None;
/// threadteam::Exec::serial().fork(1, |_, child| escaped = Some(child)); // a child cannot leave its body
/// ```
pub struct Exec<'p> {
    place: Place<'p>,
    budget: NonZeroUsize,
    /// Whose workers it may claim, in a pool over cache domains.
    reach: Reach,
    fork_child: bool,
    /// Whether a team scope of it is a root scope, when it carries a team.
    root: bool,
    hook: Option<Hook<'p>>,
    /// How its leader waits.
    wait: &'p WaitPolicy,
    /// Serial time of the next section in nanoseconds, 0 if unknown.
    estimate: u64,
    /// Where its tasks are counted, in tests.
    ticket: Ticket,
    /// Held by the root token of a [`Team`](crate::Team).
    _lead: Option<Lead<'p>>,
}

impl<'p> Exec<'p> {
    /// The token of the calling thread alone.
    #[inline]
    pub const fn serial() -> Exec<'static> {
        Exec {
            place: Place::Here,
            budget: NonZeroUsize::MIN,
            reach: Reach::ANYWHERE,
            fork_child: false,
            root: false,
            hook: None,
            wait: &WaitPolicy::DEFAULT,
            estimate: 0,
            ticket: Ticket::NONE,
            _lead: None,
        }
    }

    /// A root token of `pool`; `budget` is clamped to the pool's width.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroBudget`] for a budget of zero.
    pub fn new(pool: &'p Pool, budget: usize) -> Result<Exec<'p>, Error> {
        let budget = NonZeroUsize::new(budget).ok_or(Error::ZeroBudget)?.min(pool.width());
        let (wait, ticket) = (&pool.inner().settings.wait, Ticket::root(budget));
        Ok(Exec { place: Place::Pool(pool), budget, reach: pool.reach(), wait, ticket, ..Exec::serial() })
    }

    /// A token whose sections another execution system dispatches; `budget` is clamped to its width.
    pub fn foreign(system: &'p dyn Foreign, budget: NonZeroUsize) -> Exec<'p> {
        let width = NonZeroUsize::new(system.width()).unwrap_or(NonZeroUsize::MIN);
        let budget = budget.min(width);
        Exec { place: Place::Foreign(system), budget, ticket: Ticket::root(budget), ..Exec::serial() }
    }

    /// A root token of a persistent team.
    pub(crate) fn of_team(pool: &'p Pool, members: &'p [u16], wait: &'p WaitPolicy, lead: Lead<'p>) -> Exec<'p> {
        let budget = NonZeroUsize::MIN.saturating_add(members.len());
        let ticket = Ticket::root(budget);
        let place = Place::Team(pool, members);
        Exec { place, budget, reach: pool.reach(), root: true, wait, ticket, _lead: Some(lead), ..Exec::serial() }
    }

    /// The token of a team's members, for as long as the team's own is borrowed.
    pub(crate) fn of_members(
        pool: &'p Pool,
        members: &'p [u16],
        wait: &'p WaitPolicy,
        hook: Option<Hook<'p>>,
        ticket: Ticket,
    ) -> Exec<'p> {
        let budget = NonZeroUsize::MIN.saturating_add(members.len());
        let place = Place::Team(pool, members);
        Exec { place, budget, reach: pool.reach(), wait, hook, ticket, ..Exec::serial() }
    }

    /// Where this token's tasks are counted.
    pub(crate) fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// The number of this token's root in the [`ledger`](crate::ledger), for tests. Tokens derived from a root have its
    /// number; [`Exec::serial`] has none.
    ///
    /// ```
    /// use threadteam::{Exec, Pool};
    ///
    /// let pool = Pool::builder().threads(1).build()?;
    /// let mut exec = Exec::new(&pool, 1)?;
    /// let root = exec.ledger_root();
    /// assert!(root.is_some() && exec.reborrow().ledger_root() == root);
    /// assert!(Exec::serial().ledger_root().is_none());
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    #[cfg(feature = "ledger")]
    pub fn ledger_root(&self) -> Option<u64> {
        self.ticket.root_number()
    }

    /// What a reservation of this token's members starts from: its pool, and the members that it carries.
    #[allow(clippy::type_complexity)]
    pub(crate) fn to_reserve(&self) -> Result<(Option<&'p Pool>, Option<&'p [u16]>), Refused> {
        match self.place {
            Place::Here => Ok((None, None)),
            Place::Pool(pool) => Ok((Some(pool), None)),
            Place::Team(pool, members) => Ok((Some(pool), Some(members))),
            Place::Foreign(_) => Err(Refused::Unavailable),
        }
    }

    /// Whose workers it may claim.
    pub(crate) fn reach(&self) -> Reach {
        self.reach
    }

    pub(crate) fn hook(&self) -> Option<Hook<'p>> {
        self.hook
    }

    /// How the leader of this token's sections waits.
    pub(crate) fn wait(&self) -> &'p WaitPolicy {
        self.wait
    }

    /// The slots of this token.
    #[inline]
    pub fn budget(&self) -> NonZeroUsize {
        self.budget
    }

    /// Whether a team scope of this token places its members: a root scope of a pool that asks for it.
    pub(crate) fn places_members(&self) -> bool {
        match self.place {
            Place::Pool(pool) => pool.pin_participants(),
            // Children, loans and sub-teams keep the placement of their root.
            Place::Team(pool, _) => pool.pin_participants() && self.root,
            Place::Here | Place::Foreign(_) => false,
        }
    }

    /// At the entry of a root scope, how many CPUs there are is decided anew. Children, loans and sub-teams keep that.
    pub(crate) fn enter_root_scope(&self, inner: &Inner) {
        let is_root = match self.place {
            Place::Pool(_) => !self.fork_child,
            Place::Team(..) => self.root,
            Place::Here | Place::Foreign(_) => false,
        };
        if is_root {
            inner.crowd.decide(inner);
        }
    }

    /// Whether everything runs on the calling thread.
    #[inline]
    pub fn is_serial(&self) -> bool {
        self.budget == NonZeroUsize::MIN
    }

    /// Whether the token was minted by, or derived from, a team: its sections go to reserved members.
    #[inline]
    pub fn carries_team(&self) -> bool {
        matches!(self.place, Place::Team(..))
    }

    /// Where this token's sections are recorded, if anywhere: programs label their steps there.
    pub fn trace(&self) -> Option<Arc<Trace>> {
        match self.place {
            Place::Here => None,
            Place::Pool(pool) | Place::Team(pool, _) => pool.inner().share_trace(),
            Place::Foreign(system) => system.trace().cloned(),
        }
    }

    /// The same slots for a callee while `self` is borrowed.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::num::NonZeroUsize;
    /// use threadteam::{Exec, Pool};
    ///
    /// fn phase(exec: Exec<'_>) {
    ///     exec.for_ranges(100, NonZeroUsize::MIN, |_range| ());
    /// }
    ///
    /// let pool = Pool::builder().threads(2).build()?;
    /// let mut token = Exec::new(&pool, 2)?;
    /// phase(token.reborrow());
    /// phase(token); // the last phase may have the token itself
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    #[inline]
    pub fn reborrow(&mut self) -> Exec<'_> {
        Exec { root: false, ..self.for_an_entry() }
    }

    /// The same token for one entry: for owners that keep the token and cannot give it away, a language binding. Unlike a
    /// [`reborrow`](Self::reborrow), a team scope of it is a root scope if one of this token is.
    #[inline]
    pub fn for_an_entry(&mut self) -> Exec<'_> {
        Exec {
            place: self.place,
            budget: self.budget,
            reach: self.reach,
            fork_child: self.fork_child,
            root: self.root,
            hook: self.hook,
            wait: self.wait,
            estimate: self.estimate,
            ticket: self.ticket.clone(),
            _lead: None,
        }
    }

    /// At most `max` of the slots; the others stay unused.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::num::NonZeroUsize;
    /// use threadteam::{Exec, Pool};
    ///
    /// let pool = Pool::builder().threads(4).build()?;
    /// let exec = Exec::new(&pool, 4)?.limit(NonZeroUsize::new(2).unwrap());
    /// assert_eq!(exec.budget().get(), 2);
    /// assert!(exec.limit(NonZeroUsize::MIN).is_serial());
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    #[inline]
    pub fn limit(mut self, max: NonZeroUsize) -> Exec<'p> {
        self.narrow(max);
        self
    }

    /// In place: a token is some cache lines, and a copy of one that was just written waits for the writes.
    #[inline]
    fn narrow(&mut self, max: NonZeroUsize) {
        if max >= self.budget {
            return;
        }
        self.budget = max;
        self.ticket = self.ticket.derive("a limit", max);
        if let Place::Team(_, members) = &mut self.place {
            *members = &members[..max.get() - 1];
        }
    }

    /// Calls `hook` about every 50 ms while the calling thread waits: at a join of this token or of one lent from it, or for
    /// members of a team or a broadcast. `Break` gives such members up with [`Refused::Interrupted`]; a join has to wait for
    /// who is inside, whatever the hook says.
    #[inline]
    pub fn with_wait_hook<'q>(self, hook: &'q (dyn Fn() -> ControlFlow<()> + Sync)) -> Exec<'q>
    where
        'p: 'q,
    {
        Exec { hook: Some(hook), ..self }
    }

    /// Says how long the next section takes on one thread. Sleeping members are woken at once for a section that is much
    /// longer than a wake.
    #[inline]
    pub fn expecting(mut self, serial: Duration) -> Exec<'p> {
        self.expect(serial);
        self
    }

    #[inline]
    fn expect(&mut self, serial: Duration) {
        self.estimate = u64::try_from(serial.as_nanos()).unwrap_or(u64::MAX);
    }

    /// The width that pays for a region of `serial` time in one section, with that time noted as in
    /// [`expecting`](Self::expecting): what a kernel calls first.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use threadteam::{Exec, Pool};
    ///
    /// let pool = Pool::builder().threads(2).build()?;
    /// let mut token = Exec::new(&pool, 2)?;
    /// assert!(token.reborrow().sized_for(Duration::from_nanos(100)).is_serial());
    /// assert_eq!(token.sized_for(Duration::from_millis(1)).budget().get(), 2);
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    #[inline]
    pub fn sized_for(mut self, serial: Duration) -> Exec<'p> {
        if !self.is_serial() {
            let width = match self.place {
                Place::Pool(pool) | Place::Team(pool, _) if pool.costs().are_too_high_for(serial) => NonZeroUsize::MIN,
                _ => self.width_for(serial, 1),
            };
            self.narrow(width);
            self.expect(serial);
        }
        self
    }
}

impl std::fmt::Debug for Exec<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exec").field("budget", &self.budget).field("carries_team", &self.carries_team()).finish()
    }
}

/// Claimed workers, given back on drop.
struct Held<'a> {
    inner: &'a Inner,
    ids: &'a [u16],
    epoch: u32,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.inner.give_back(self.ids, self.epoch);
    }
}
