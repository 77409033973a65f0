//! How a budget or a team is cut into parts.

/// Sizes of the parts, in order.
#[derive(Clone, Copy)]
pub(crate) enum Shares<'a> {
    /// `total` in `count` parts that differ by at most one, the larger ones first.
    Even { total: usize, count: usize },
    /// As given.
    Sized(&'a [usize]),
}

impl<'a> Shares<'a> {
    pub(crate) fn even(total: usize, count: usize) -> Self {
        Shares::Even { total, count }
    }

    pub(crate) fn sized(sizes: &'a [usize]) -> Self {
        Shares::Sized(sizes)
    }

    pub(crate) fn count(&self) -> usize {
        match self {
            Shares::Even { count, .. } => *count,
            Shares::Sized(sizes) => sizes.len(),
        }
    }

    pub(crate) fn size(&self, part: usize) -> usize {
        match self {
            Shares::Even { total, count } => total / count + usize::from(part < total % count),
            Shares::Sized(sizes) => sizes[part],
        }
    }

    /// The sum of the sizes before `part`.
    pub(crate) fn start(&self, part: usize) -> usize {
        match self {
            Shares::Even { total, count } => part * (total / count) + part.min(total % count),
            Shares::Sized(sizes) => sizes[..part].iter().sum(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn even_shares_conserve_the_total_and_differ_by_at_most_one() {
        for total in 1..40 {
            for count in 1..=total {
                let shares = Shares::even(total, count);
                let sizes: Vec<usize> = (0..count).map(|part| shares.size(part)).collect();
                assert_eq!(sizes.iter().sum::<usize>(), total);
                assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
                for part in 0..count {
                    assert_eq!(shares.start(part), sizes[..part].iter().sum::<usize>());
                }
            }
        }
    }
}
