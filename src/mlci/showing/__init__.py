"""Tables in, pictures and pages out: plots, report and card."""
