//! What a section of a token costs, and whether it pays.

use super::{Exec, Place};
use crate::cost::{pays_at, width_for_by, DispatchCosts, DispatchKind};
use std::num::NonZeroUsize;
use std::time::Duration;

impl<'p> Exec<'p> {
    /// What one section of `width` participants costs this token; [`Duration::MAX`] when there is nothing to dispatch.
    pub fn dispatch_cost(&self, width: NonZeroUsize) -> Duration {
        let width = width.min(self.budget);
        if width == NonZeroUsize::MIN {
            return Duration::MAX;
        }
        match self.charges() {
            Some((costs, kind)) => costs.cost(kind, width),
            None => Duration::MAX,
        }
    }

    /// The costs of this token's sections and the kind of its dispatch; `None` when there is nothing to dispatch.
    #[inline]
    fn charges(&self) -> Option<(&'p DispatchCosts, DispatchKind)> {
        match self.place {
            Place::Here => None,
            Place::Pool(pool) if pool.is_worker() => Some((pool.costs(), DispatchKind::InPool)),
            Place::Pool(pool) => Some((pool.costs(), DispatchKind::Outside)),
            Place::Team(pool, _) => Some((pool.costs(), DispatchKind::Team)),
            Place::Foreign(_) => Some((DispatchCosts::of_host(), DispatchKind::Outside)),
        }
    }

    /// Whether a region of `estimate` serial time in `sections` sections gains from `width` participants.
    pub fn pays(&self, estimate: Duration, sections: u32, width: NonZeroUsize) -> bool {
        pays_at(estimate, sections, self.dispatch_cost(width))
    }

    /// The width in `1..=budget` that makes such a region shortest, 1 if none pays.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use threadteam::{DispatchCosts, Exec, Pool, WidthCosts};
    ///
    /// let costs = DispatchCosts::new(
    ///     WidthCosts::flat(Duration::from_micros(1)),
    ///     WidthCosts::flat(Duration::from_micros(1)),
    ///     WidthCosts::flat(Duration::from_micros(1)),
    /// );
    /// let pool = Pool::builder().threads(4).dispatch_costs(costs).build()?;
    /// let exec = Exec::new(&pool, 4)?;
    /// // Below three times a section's cost nothing is gained; far above it everybody helps.
    /// assert_eq!(exec.width_for(Duration::from_nanos(2900), 1).get(), 1);
    /// assert_eq!(exec.width_for(Duration::from_micros(100), 1).get(), 4);
    /// # Ok::<(), threadteam::Error>(())
    /// ```
    #[inline]
    pub fn width_for(&self, estimate: Duration, sections: u32) -> NonZeroUsize {
        match self.charges() {
            Some((costs, kind)) => width_by(costs, kind, estimate, sections, self.budget),
            None => NonZeroUsize::MIN,
        }
    }
}

/// Takes nothing by reference to the token: one that nobody refers to can stay in registers.
fn width_by(
    costs: &DispatchCosts,
    kind: DispatchKind,
    estimate: Duration,
    sections: u32,
    budget: NonZeroUsize,
) -> NonZeroUsize {
    width_for_by(estimate, sections, budget, |width| costs.cost(kind, width))
}
