"""ICD codes: how they are written, what they mean, and to which comorbidities they belong."""
