"""
Quickstart: codes in, one severity number out
=============================================

Make a synthetic hospital, learn an index from it, and see what the index says about an admission.
"""

# %%
# A cohort has one row per admission: codes, outcomes, split. This is synthetic; `mlci cohort` builds one from tables.
import mlci

cohort = mlci.build_cohort("synthetic", 1_500, seed=1)
print(len(cohort), "admissions;", ", ".join(cohort.outcomes))

# %%
# Fit on the train and valid splits. The default recipe is a table of weights; `recipe="deep"` trains networks.
index = mlci.MLCI(seed=11).fit(cohort)

# %%
# Score the admissions of the test split, or any lists of codes.
test = cohort.split("test")
score = index.score(test)
print("median score", round(float(sorted(score)[len(score) // 2]), 3))
print(index.score([["I50.9", "N17.9"], ["E11.9"]], icd_version=10))

# %%
# See what the score means: the risk of each outcome, and what each code adds.
print(index.risk([["I50.9", "N17.9"]], icd_version=10).round(3).to_string(index=False))
for effect in index.explain(["I50.9", "N17.9"], icd_version=10):
    print(f"{effect.code} {effect.title}: {effect.effect:+.3f}")

# %%
# Compute a classic index for the same admissions.
print(mlci.charlson(test)["cci_charlson"].describe().round(2).to_string())

# %%
# Save the index as one file, and read it back.
index.save("model.safetensors")
assert (mlci.load("model.safetensors").score(test) == score).all()
