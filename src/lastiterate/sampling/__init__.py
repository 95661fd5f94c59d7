"""Langevin sampling, and what posterior samples and unfinished chains reveal about the data."""

from lastiterate.sampling.interim import InterimPrivacy, interim_privacy, interim_resampled
from lastiterate.sampling.langevin import sgld, sgld_training
from lastiterate.sampling.likelihood import (
    GeneralizedLinear,
    RecordGradients,
    gaussian_likelihood,
    logistic_likelihood,
)
from lastiterate.sampling.posterior import (
    LinearPosteriorPrivacy,
    PosteriorPrivacy,
    linear_posterior_privacy,
    posterior_privacy,
    posterior_records,
)
from lastiterate.sampling.propose_test_sample import (
    Release,
    propose_test_sample,
    swapped_for_sgld,
)
from lastiterate.sampling.samples import Samples

__all__ = [
    "GeneralizedLinear",
    "InterimPrivacy",
    "LinearPosteriorPrivacy",
    "PosteriorPrivacy",
    "RecordGradients",
    "Release",
    "Samples",
    "gaussian_likelihood",
    "interim_privacy",
    "interim_resampled",
    "linear_posterior_privacy",
    "logistic_likelihood",
    "posterior_privacy",
    "posterior_records",
    "propose_test_sample",
    "sgld",
    "sgld_training",
    "swapped_for_sgld",
]
