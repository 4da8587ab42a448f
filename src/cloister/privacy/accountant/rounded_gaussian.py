r"""Distance between discrete Gaussian noise and the rounded normal law, for many coordinates and steps.

No theorem gives the privacy loss distribution of discrete Gaussian noise on a Poisson sample of integer vectors. There
is one for the normal law, and noise from a rounded normal law inherits it: on integers x, round(x + N) = x + round(N),
so adding round(N) is a post-processing of the continuous mechanism. Discrete noise is so near to round(N) that the
difference fits into delta.

**Claim.** Let p be the discrete Gaussian law of parameter sigma >= 1024, and q the law of round(N(0, sigma²)). Then

    KL(q || p) <= chi²(q || p) <= (1 + 1e-6) / (288 sigma⁴).

**Proof.** Write s = sigma and r(k) = q(k)/p(k). With Z = sum of exp(-k²/2s²), c = Z / (s sqrt(2 pi)), and U uniform
on [-1/2, 1/2], substituting x = k + u in q(k) = integral of the normal density over [k - 1/2, k + 1/2] gives

    r(k) = c E_U[exp(-U²/2s²) exp(-kU/s²)] = c E_U[exp(-U²/2s²) cosh(kU/s²)]        (U is symmetric).

For V an independent copy of U, and K drawn from p,

    E_p[r²] = c² E_{U,V}[exp(-(U²+V²)/2s²) E_p[cosh(KU/s²) cosh(KV/s²)]],
    cosh a cosh b = (cosh(a+b) + cosh(a-b))/2,     E_p[cosh(tK)] = E_p[exp(tK)] <= exp(t² s²/2)

since E_p[exp(tK)] = exp(t² s²/2) sum_k exp(-(k - ts²)²/2s²) / sum_k exp(-k²/2s²), and the sum over shifted integers
is largest without a shift (its Fourier coefficients are positive). So

    E_p[r²] <= c² E_{U,V}[exp(-(U²+V²)/2s²) (exp((U+V)²/2s²) + exp((U-V)²/2s²))/2] = c² E_{U,V}[cosh(UV/s²)].

As |UV| <= 1/4, cosh(x) <= 1 + (x²/2) cosh(1/(4s²)), and E[U²V²] = 1/144: E cosh <= 1 + cosh(1/(4s²))/(288 s⁴).
By Poisson summation c = 1 + 2 sum_{j>=1} exp(-2 pi² s² j²), less than 1 + 1e-1000000 at s >= 1024. Since E_p[r] = 1,
chi² = E_p[r²] - 1, and the constants fit into the factor 1 + 1e-6. KL <= ln(1 + chi²) <= chi² (Jensen).

**Composition.** A run draws D integers of noise in all: coordinates times steps. Each step sees its data, its sample
and all earlier outputs, and adds independent noise. By the chain rule and convexity (a sample is averaged over, which
does not increase KL), the KL divergence of all outputs of a run with rounded noise from those with discrete noise is
at most D times the bound, whatever the data and however later steps depend on earlier outputs. By Pinsker's inequality
the total variation is at most

    tau = sqrt(D chi² / 2) <= sqrt(D) (1 + 1e-6) / (24 sigma²).

If the run with continuous noise is (epsilon, delta)-private, the run with discrete noise is
(epsilon, delta + (1 + e^epsilon) tau)-private: P[M(x) in S] <= P[M'(x) in S] + tau <= e^epsilon P[M'(y) in S] + delta
+ tau <= e^epsilon (P[M(y) in S] + tau) + delta + tau. With sigma = 2^30 steps and 10^10 draws tau is below 4e-15.
"""

import math
from fractions import Fraction

from cloister.privacy.errors import BadScale
from cloister.privacy.number import show

__all__ = ["FINEST_SIGMA", "divergence", "total_variation"]

FINEST_SIGMA = 1024


def divergence(sigma: Fraction) -> Fraction:
    """Return an upper bound on the KL divergence of rounded normal from discrete Gaussian noise, for one integer."""
    if sigma < FINEST_SIGMA:
        raise BadScale(
            f"discrete noise is compared with normal noise from a sigma of {FINEST_SIGMA} grid steps on, got "
            f"{show(sigma)}. Use a finer grid."
        )
    return Fraction(1_000_001, 288_000_000) / sigma**4


def total_variation(total: Fraction) -> float:
    """Return an upper bound on the total variation of two laws of this KL divergence, rounded up (Pinsker)."""
    return math.sqrt(float(total) / 2) * (1 + 2.0**-50)
