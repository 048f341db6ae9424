"""Write the MIMIC-IV demo as a MEDS folder: events of admissions, ICU stays, deaths and diagnoses."""

from pathlib import Path

import pandas as pd


def write(demo: Path, folder: Path, *, hadm: bool = True, splits: dict[int, str] | None = None) -> Path:
    """Write data/train/0.parquet and data/1.parquet (and metadata/subject_splits.parquet) below `folder`."""
    table = {path.stem: pd.read_csv(path, dtype={"icd_code": str}) for path in demo.glob("*/*.csv")}
    stays, people = table["admissions"], table["patients"]
    parts = [
        stays.assign(time=stays.admittime, code="HOSPITAL_ADMISSION//" + stays.admission_type),
        stays.assign(time=stays.dischtime, code="HOSPITAL_DISCHARGE//" + stays.discharge_location.fillna("UNK")),
        table["icustays"].assign(
            time=table["icustays"].intime, code="ICU_ADMISSION//" + table["icustays"].first_careunit
        ),
        people.assign(time=None, code="GENDER//" + people.gender, hadm_id=None),
        people.assign(
            time=(people.anchor_year - people.anchor_age).astype(str) + "-01-01", code="MEDS_BIRTH", hadm_id=None
        ),
    ]
    died = stays.dropna(subset="deathtime").set_index("subject_id").deathtime
    dead = people.assign(time=people.subject_id.map(died).fillna(people.dod), code="MEDS_DEATH", hadm_id=None)
    dx = table["diagnoses_icd"].sort_values(["hadm_id", "seq_num"], kind="stable")
    dx = dx.merge(stays[["hadm_id", "dischtime"]], on="hadm_id")
    coded = dx.assign(
        time=dx.dischtime, code="DIAGNOSIS//ICD//" + dx.icd_version.astype(str) + "//" + dx.icd_code.str.strip()
    )
    frame = pd.concat(
        [part[["subject_id", "time", "code", "hadm_id"]] for part in (*parts, dead.dropna(subset="time"), coded)]
    )
    frame["time"] = pd.to_datetime(frame.time, format="mixed").astype("datetime64[us]")
    frame["hadm_id"] = frame.hadm_id.astype("Int64")
    frame["numeric_value"] = pd.Series(dtype="float32")
    frame = frame.sort_values(["subject_id", "time"], kind="stable")
    frame = frame if hadm else frame.drop(columns="hadm_id")
    (folder / "data" / "train").mkdir(parents=True)
    middle = frame.subject_id.median()
    frame[frame.subject_id <= middle].to_parquet(folder / "data" / "train" / "0.parquet", index=False)
    frame[frame.subject_id > middle].to_parquet(folder / "data" / "1.parquet", index=False)
    if splits:
        (folder / "metadata").mkdir()
        pd.DataFrame(splits.items(), columns=["subject_id", "split"]).to_parquet(
            folder / "metadata" / "subject_splits.parquet"
        )
    return folder
