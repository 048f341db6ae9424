"""The statistics: pure functions on arrays that know nothing of patients."""
