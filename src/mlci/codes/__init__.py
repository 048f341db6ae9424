"""What is known about ICD codes: how they are written, what they mean, which comorbidity they stand for."""
