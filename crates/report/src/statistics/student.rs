//! Student's t distribution.

/// The probability that |t| is at least this large by chance, with so many degrees of freedom.
pub fn two_sided(t: f64, freedom: f64) -> f64 {
    incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// The t whose [`two_sided`] probability is `p` (0 < p < 1).
pub fn critical(p: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while two_sided(high, freedom) > p {
        high *= 2.0;
    }
    // As many halvings as a double has digits.
    for _ in 0..53 {
        let middle = f64::midpoint(low, high);
        if two_sided(middle, freedom) > p {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// The regularised incomplete beta function, by its continued fraction (Abramowitz and Stegun 26.5.8).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges fast on this side; the other side is its mirror image.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = (a * x.ln() + b * (1.0 - x).ln() - ln_beta(a, b)).exp() / a;
    let mut fraction = 1.0;
    // The number of terms is proportional to the root of the larger parameter.
    let terms = 20 + 5 * (a.max(b).sqrt() as u32);
    for m in (1..=terms).rev() {
        let k = f64::from(m);
        let even = k * (b - k) * x / ((a + 2.0 * k - 1.0) * (a + 2.0 * k));
        let odd = -(a + k - 1.0) * (a + b + k - 1.0) * x / ((a + 2.0 * k - 2.0) * (a + 2.0 * k - 1.0));
        fraction = 1.0 + odd / (1.0 + even / fraction);
    }
    front / fraction
}

fn ln_beta(a: f64, b: f64) -> f64 {
    ln_gamma(a) + ln_gamma(b) - ln_gamma(a + b)
}

/// Stirling's series, after moving the argument to where the series is exact.
fn ln_gamma(mut x: f64) -> f64 {
    let mut shift = 0.0;
    while x < 10.0 {
        shift += x.ln();
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let series = (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1260.0 - inverse / 1680.0))) / x;
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_any_textbook() {
        for (freedom, p, t) in [
            (1.0, 0.05, 12.706),
            (2.0, 0.05, 4.303),
            (4.0, 0.05, 2.776),
            (9.0, 0.05, 2.262),
            (9.0, 0.01, 3.250),
            (30.0, 0.05, 2.042),
            (4.0, 0.001, 8.610),
            (200.0, 0.05, 1.972),
        ] {
            assert!((critical(p, freedom) - t).abs() < 6e-4, "{freedom} {p}: {}", critical(p, freedom));
            assert!((two_sided(t, freedom) / p - 1.0).abs() < 2e-3, "{freedom} {t}: {}", two_sided(t, freedom));
        }
    }

    #[test]
    fn the_ends() {
        assert_eq!(two_sided(0.0, 4.0), 1.0);
        assert_eq!(two_sided(f64::INFINITY, 4.0), 0.0);
        assert!(two_sided(1e9, 4.0) < 1e-30);
    }
}
