//! Order statistics.

/// The `q` quantile of sorted values, by the nearest rank. NaN when there are none.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    match sorted.len() {
        0 => f64::NAN,
        n => sorted[((n as f64 * q).ceil() as usize).clamp(1, n) - 1],
    }
}

/// Sorts, ignoring no value: NaN goes last.
pub fn sort(values: &mut [f64]) {
    values.sort_by(f64::total_cmp);
}

/// The median; sorts the values.
pub fn median(values: &mut [f64]) -> f64 {
    sort(values);
    quantile(values, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(quantile(&sorted, 0.5), 50.0);
        assert_eq!(quantile(&sorted, 0.9), 90.0);
        assert_eq!(quantile(&sorted, 0.99), 99.0);
        assert_eq!(quantile(&sorted, 1.0), 100.0);
    }

    #[test]
    fn a_quantile_of_few_values_exists() {
        assert_eq!(quantile(&[3.0], 0.99), 3.0);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
