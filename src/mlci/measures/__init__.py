"""The statistics: pure functions on arrays that know nothing of patients.

- Dependence: `alignment` (nHSIC, distance correlation, bandwidth), `independence` (bias-corrected distance correlation
  and its test), `information` (mutual information), `numeric` (the same for two numbers).
- Order and calibration: `discrimination`.
- Uncertainty: `design` (patients, weights, strata), `resample` (bootstrap), `intervals`.
- The list of metrics: `registry`, whose parts are `metric.Pair`, `metric.Resampler` and `metric.Metric`.
- Other: `ratios` (observed / expected, funnel limits), `matching` (of score distributions), `sample_size`, `weighted`
  (weighted means and quantiles), `distributions` (without SciPy).
"""
